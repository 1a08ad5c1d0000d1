"""Something small that was trained, on disk: a directory with safetensors and a JSON file that says what they are."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ...errors import InvalidModelFile, ModelNotFound


@dataclass(frozen=True, slots=True)
class Kind:
    """what it is called in messages, and stem, the name of its two files."""

    what: str
    stem: str
    version: int = 1

    @property
    def format(self) -> str:
        return f"forerun {self.what}"

    @property
    def weights_file(self) -> str:
        return f"{self.stem}.safetensors"

    @property
    def about_file(self) -> str:
        return f"{self.stem}.json"


def write_saved(kind: Kind, directory: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Written under another name and moved when complete. Raises ValueError where that fails or the directory is there."""
    if directory.exists():
        raise ValueError(f"{directory} is there already; name another directory")
    text = json.dumps({"format": kind.format, "version": kind.version, **about}, indent=1)
    with published(directory, f"the {kind.what} to {directory}") as partial:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial / kind.weights_file)
        (partial / kind.about_file).write_text(text + "\n", encoding="utf-8")


@contextmanager
def published(directory: Path, what: str) -> Iterator[Path]:
    """A folder beside `directory` that takes its name at the end, or goes away if anything is wrong.

    Raises ValueError that names what can't be written.
    """
    partial = directory.absolute().with_name(f".partial-{directory.name}-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        yield partial
        os.rename(partial, directory)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"can't write {what}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def read_saved(kind: Kind, directory: Path) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
    """What the JSON file says, and the tensors. What can't be made of them in the block is an InvalidModelFile.

    Raises ModelNotFound, and InvalidModelFile on a file that is none of ours, truncated, or of a newer version.
    """
    file = directory / kind.about_file
    if not file.is_file():
        raise ModelNotFound(f"no {kind.what} at {directory}: there is no {kind.about_file}")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        if (about["format"], about["version"]) != (kind.format, kind.version):
            raise ValueError(
                f"format {about['format']!r}, version {about['version']}; this release reads {kind.format!r}, version "
                f"{kind.version}"
            )
        yield about, load_file(directory / kind.weights_file)
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise InvalidModelFile(f"{directory} holds no {kind.what} that can be read: {error}") from error
