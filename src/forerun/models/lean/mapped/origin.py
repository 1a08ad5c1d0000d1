"""What packed weights are made of: the model's files, the form, and the code that packs them."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ... import gguf, lean
from ...gguf.convert import fingerprint
from ...gguf.shards import shards_of

PACKAGES = ("forerun", "torch", "transformers")


def origin_of(model: Path, weights: str, dtype: torch.dtype | None) -> dict[str, Any]:
    """Everything that decides which bytes come out, as JSON holds it. model: a GGUF file or a directory."""
    return {
        "model": str(model.resolve()),
        "files": [_described(file) for file in files_of(model)],
        "weights": weights,
        "dtype": str(dtype or "").removeprefix("torch."),
        "code": code(),
    }


def files_of(model: Path) -> list[Path]:
    """The files that hold the model's weights and configuration."""
    if model.is_file():
        return list(shards_of(model))
    return sorted([*model.glob("*.safetensors"), *model.glob("*.safetensors.index.json"), model / "config.json"])


def code() -> str:
    """16 hex digits of the sources that read, order and pack weights: no file outlives a change of them."""
    digest = hashlib.sha256()
    for name in PACKAGES:
        digest.update(f"{name} {version(name)}\n".encode())
    for room in (gguf, lean):
        for folder in room.__path__:
            for source in sorted(Path(folder).rglob("*.py")):
                digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _described(file: Path) -> list[Any]:
    found = file.stat()
    return [file.name, found.st_size, found.st_mtime_ns, fingerprint(file)]
