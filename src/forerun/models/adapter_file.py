"""An exit adapter on disk: safetensors beside a JSON file that says which model it belongs to and how it is built."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..errors import InvalidModelFile, ModelNotFound
from .identity import Identity

FORMAT, VERSION = "forerun exit adapter", 1
WEIGHTS_FILE, ABOUT_FILE = "adapter.safetensors", "adapter.json"
INPUTS = ("state", "state+token")


@dataclass(frozen=True, slots=True)
class AdapterShape:
    """How an adapter is built: `depth` Llama blocks on the states that layer exit_layer is given.

    inputs "state": row i reads the state of token i and says what token i + 1 is. "state+token": it reads the state of
    token i and token i + 1 itself, and says what token i + 2 is; no layer of the base runs while drafting.
    """

    exit_layer: int
    inputs: str
    depth: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_theta: float

    def __post_init__(self) -> None:
        if self.inputs not in INPUTS:
            raise ValueError(f"inputs must be one of {', '.join(INPUTS)}, got {self.inputs!r}")
        if self.depth < 1:
            raise ValueError(f"the adapter's depth must be at least 1, got {self.depth}")

    def check(self, num_layers: int) -> None:
        """Raises ValueError where a model of so many layers has no such exit."""
        last = num_layers if self.inputs == "state+token" else num_layers - 1
        if not 1 <= self.exit_layer <= last:
            raise ValueError(
                f"the exit layer must be in 1..{last} for a model of {num_layers} layers and inputs {self.inputs!r}, got "
                f"{self.exit_layer}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class AdapterFile:
    """weights have the names of a Llama checkpoint, with "state_norm.weight" [D] and "fuse.weight" [D, D or 2 D] before it.

    ranking [any] are the token ids of the training answers, the most frequent first: what a restricted head holds.
    trained says how, for the reader.
    """

    shape: AdapterShape
    base: Identity
    weights: Mapping[str, Tensor]
    ranking: Tensor
    trained: Mapping[str, Any] = field(default_factory=dict)

    def check_base(self, other: Identity) -> None:
        """Raises ValueError where the adapter belongs to another model."""
        if reason := self.base.difference(other):
            raise ValueError(f"the exit adapter was trained for another model: its base's {reason}")


def write_adapter(adapter: AdapterFile, directory: Path) -> None:
    """Written under another name and moved when complete. Raises ValueError where that fails or the directory is there."""
    if directory.exists():
        raise ValueError(f"{directory} is there already; name another directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=directory.parent))
    about = {
        "format": FORMAT,
        "version": VERSION,
        "shape": asdict(adapter.shape),
        "base": adapter.base.as_dict(),
        "trained": dict(adapter.trained),
    }
    try:
        tensors = {name: tensor.contiguous() for name, tensor in adapter.weights.items()}
        save_file({**tensors, "ranking": adapter.ranking.int()}, partial / WEIGHTS_FILE)
        (partial / ABOUT_FILE).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        os.chmod(partial, 0o755)
        os.replace(partial, directory)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"can't write the adapter to {directory}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_adapter(directory: Path) -> AdapterFile:
    """Raises ModelNotFound, and InvalidModelFile on a file that is none of ours, truncated, or of a newer version."""
    about_file = directory / ABOUT_FILE
    if not about_file.is_file():
        raise ModelNotFound(f"no exit adapter at {directory}: there is no {ABOUT_FILE}")
    try:
        about = json.loads(about_file.read_text(encoding="utf-8"))
        if (about["format"], about["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {about['format']!r}, version {about['version']}; this release reads {VERSION}")
        shape, base = AdapterShape(**about["shape"]), Identity.from_dict(about["base"])
        tensors = load_file(directory / WEIGHTS_FILE)
        ranking = tensors.pop("ranking")
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise InvalidModelFile(f"{directory} holds no exit adapter that can be read: {error}") from error
    return AdapterFile(shape, base, tensors, ranking.long(), about.get("trained", {}))
