"""The user's cache saves work, and nothing requires it: if it can't be written, the work is repeated."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from rich.console import Console


def cache_folder(folder: Path) -> Path:
    """The folder, created if necessary. If it can't be written, a note goes to stderr, and a temporary folder is used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        tell_unkept(folder, error)
    instead = Path(tempfile.mkdtemp(prefix="forerun-"))
    atexit.register(shutil.rmtree, instead, ignore_errors=True)
    return instead


def is_kept(folder: Path) -> bool:
    """Whether the folder exists and this process may read it."""
    try:
        return folder.is_dir()
    except OSError:
        return False


def tell_unkept(folder: Path, error: OSError) -> None:
    """A line on stderr: nothing can be kept in this part of the cache."""
    Console(stderr=True, highlight=False, markup=False).print(
        f"the cache {folder} can't be written ({error.strerror or error}), so nothing is kept for the next time; make it "
        "writable, or set FORERUN_CACHE to another directory",
        soft_wrap=True,
    )
