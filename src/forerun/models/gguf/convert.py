"""GGUF files: unpacked once into a directory of safetensors and a tokenizer in the user's cache, loaded from there.

transformers knows the formats, the names and the tokenizer, and takes its time; what it drops of a file's keys is put in
here (gguf_keys, gguf_tokenizer). The directory is written under another
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
from typing import Any, final

import torch
from platformdirs import user_cache_dir
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.quantization_config import GgufConfig

from ...errors import InvalidModelFile, UnsupportedModel, reason_of
from ..files.cache import cache_folder, is_kept
from ..files.loading_info import check_sizes
from ..files.quiet import quiet
from .header import Header, read_header
from .keys import check_lists, check_tensors, settle_config
from .shards import joined, shards_of
from .tokenizer import ends_of, settle_tokenizer

# Of what a conversion writes: directories of another one are not used again.
VERSION = 2
PARTIAL = ".partial-"
STALE_SECONDS = 24 * 3600
_BLOCK = 1 << 20


def cache_directory() -> Path:
    """Where forerun keeps converted models: FORERUN_CACHE, else the user's cache directory."""
    return Path(os.environ.get("FORERUN_CACHE") or user_cache_dir("forerun"))


def converted(file: Path, dtype: torch.dtype) -> Path:
    """The directory with file's weights in dtype as safetensors, and its tokenizer; made on first use.

    Raises InvalidModelFile on a corrupt or truncated file, ModelNotFound where a part of it is missing, UnsupportedModel on
    an architecture, a key or a tensor that can't be applied.
    """
    shards = shards_of(file)
    for shard in shards:
        _check_magic(shard)
    models = cache_directory() / "models"
    mark = hashlib.sha256("".join(map(fingerprint, shards)).encode()).hexdigest()[:16]
    target = models / f"{file.stem}-{str(dtype).removeprefix('torch.')}-{mark}-v{VERSION}"
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
            f"can't write the converted {file.name} to {models} ({error}); free some space, or set FORERUN_CACHE"
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
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        source = Path(folder) / file.name
        shards = shards_of(file)
        if len(shards) == 1:
            source.symlink_to(file.resolve())
        else:
            joined(shards, source)
        header = read_header(source)
        model, tokenizer = _unpacked(source, header, dtype)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _unpacked(source: Path, header: Header, dtype: torch.dtype) -> tuple[Any, Any]:
    """The model and the tokenizer of a file that lies alone in its folder."""
    place = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    check_lists(header)
    try:
        config = AutoConfig.from_pretrained(**place)
        settle_config(header, config)
        model, info = AutoModelForCausalLM.from_pretrained(
            **place,
            config=config,
            dtype=dtype,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(**place)
        settle_tokenizer(header, tokenizer)
    except (MemoryError, torch.OutOfMemoryError, UnsupportedModel):
        raise
    except Exception as error:
        # its header was read, so it is whole: transformers doesn't know what it holds
        raise UnsupportedModel(f"{source.name}: {reason_of(error)}") from error
    if missing := sorted(info["missing_keys"]):
        raise InvalidModelFile(f"{source.name} lacks weights, such as {missing[0]} ({len(missing)} in all)")
    check_sizes(info, source.name)
    check_tensors(header, model)
    if ends := ends_of(header):
        model.generation_config.eos_token_id = ends
    return model, tokenizer


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
    """Files of conversions that were killed; those of a running one are younger."""
    for partial in models.glob(f"{PARTIAL}*"):
        if time.time() - partial.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(partial, ignore_errors=True)
