"""Files and folders that a command is to write: checked before the work, and named where writing fails."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


def check_file(path: Path) -> None:
    """Raise OSError where this file can't be written; its folder is made if need be."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.is_file() or not path.exists():  # a device or a pipe is written as it is
        check_folder(path.parent)


def check_lines(path: Path) -> None:
    """check_file, for a file that is read before lines are added to it: a device may never end, a pipe says nothing."""
    check_file(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file that lines can be read from and added to; name another one")


def check_folder(path: Path) -> None:
    """Raise OSError where nothing can be written into this folder, which is made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: Path, text: str) -> None:
    """The text and a line's end. An OSError names the file, as that of a full disk doesn't by itself."""
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
