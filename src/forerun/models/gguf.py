"""GGUF files: unpacked once into a directory of safetensors and a tokenizer in the user's cache, loaded from there.

transformers knows the formats, the names and the tokenizer, and takes its time. The directory is written under another
name and moved when it is complete, so a killed conversion leaves nothing that looks finished, and of two at once the
first to finish stays.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import final

import torch
from platformdirs import user_cache_dir
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.quantization_config import GgufConfig

from ..errors import InvalidModelFile, UnsupportedModel
from .cache import cache_folder, is_kept
from .quiet import quiet

PARTIAL = ".partial-"
STALE_SECONDS = 24 * 3600
_BLOCK = 1 << 20


def cache_directory() -> Path:
    """Where forerun keeps converted models: FORERUN_CACHE, else the user's cache directory."""
    return Path(os.environ.get("FORERUN_CACHE") or user_cache_dir("forerun"))


def converted(file: Path, dtype: torch.dtype) -> Path:
    """The directory with file's weights in dtype as safetensors, and its tokenizer; made on first use.

    Raises InvalidModelFile on a corrupt or truncated file, UnsupportedModel on an architecture that transformers can't read.
    """
    _check_magic(file)
    models = cache_directory() / "models"
    target = models / f"{file.stem}-{str(dtype).removeprefix('torch.')}-{fingerprint(file)}"
    if is_kept(target):
        return target
    for package in ("gguf", "accelerate"):
        if find_spec(package) is None:
            raise UnsupportedModel(f"reading {file.name} needs the package {package}: pip install 'forerun[gguf]'")
    models = cache_folder(models)
    target = models / target.name
    _remove_stale(models)
    partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=models))
    try:
        _convert(file, dtype, partial)
        _publish(partial, target)
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"can't write the converted {file.name} to {models} ({error}); make room, or set FORERUN_CACHE"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def fingerprint(file: Path) -> str:
    """16 hex digits from the size and from a megabyte at the start, the end and 14 places between."""
    size = file.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with file.open("rb") as opened:
        for place in range(16):
            opened.seek(max(size - _BLOCK, 0) * place // 15)
            digest.update(opened.read(_BLOCK))
    return digest.hexdigest()[:16]


def _check_magic(file: Path) -> None:
    with file.open("rb") as opened:
        magic = opened.read(4)
    if magic != b"GGUF":
        raise InvalidModelFile(f"{file} is not a GGUF file: it begins with {magic!r}, not with b'GGUF'")


def _convert(file: Path, dtype: torch.dtype, directory: Path) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    words = f"converting {file.name} (once)"
    if not console.is_terminal:
        console.print(words, soft_wrap=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress, quiet():
        task = progress.add_task(words)
        meter = _Meter(lambda percent: progress.update(task, completed=percent))
        with redirect_stderr(meter):
            _write(file, dtype, directory)


def _write(file: Path, dtype: torch.dtype, directory: Path) -> None:
    # alone in a folder: a tokenizer or an adapter that lies beside it belongs to some other model
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / file.name).symlink_to(file.resolve())
        try:
            unpacked = GgufConfig(dequantize=True)
            model, info = AutoModelForCausalLM.from_pretrained(
                folder, gguf_file=file.name, dtype=dtype, quantization_config=unpacked, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            if "architecture" in reason:
                raise UnsupportedModel(f"{file.name}: {reason}") from error
            raise InvalidModelFile(
                f"{file.name} can't be read; it is corrupt or truncated, get it again ({type(error).__name__}: {reason})"
            ) from error
    if missing := sorted(info["missing_keys"]):
        raise InvalidModelFile(f"{file.name} lacks weights, such as {missing[0]} ({len(missing)} in all)")
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


@final
class _Meter(io.TextIOBase):
    """Takes the place of stderr, where transformers draws a bar for the tensors it has unpacked, and reads that bar."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self._show = show

    def write(self, text: str) -> int:
        for percent in re.findall(r"(\d+)%\|", text):
            self._show(int(percent))
        return len(text)


def _publish(partial: Path, target: Path) -> None:
    try:
        os.replace(partial, target)
    except OSError:
        if not target.is_dir():
            raise


def _remove_stale(models: Path) -> None:
    """What killed conversions left behind; a running one is younger."""
    for partial in models.glob(f"{PARTIAL}*"):
        if time.time() - partial.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(partial, ignore_errors=True)
