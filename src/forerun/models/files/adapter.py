"""An exit adapter on disk: safetensors beside a JSON file that says which model it belongs to and how it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ...core.identity import Identity, digest_of
from .saved import Kind, read_saved, write_saved

KIND = Kind("exit adapter", "adapter")
INPUTS = ("state", "state+token")


@dataclass(frozen=True, slots=True)
class AdapterShape:
    """How an adapter is built: `depth` Llama blocks on the input states of layer exit_layer.

    inputs "state": row i reads the state of token i and predicts token i + 1. "state+token": it reads the state of token i
    and token i + 1 itself, and predicts token i + 2; no layer of the base runs while drafting.
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

    @property
    def digest(self) -> str:
        """Which adapter this is, in 16 hex digits."""
        return digest_of(self.weights)

    def check_base(self, other: Identity) -> None:
        """Raises ValueError where the adapter belongs to another model."""
        if reason := self.base.difference(other):
            raise ValueError(f"the exit adapter was trained for another model: its base's {reason}")


def write_adapter(adapter: AdapterFile, directory: Path) -> None:
    """Raises ValueError where that fails or the directory is there; nothing half written is left."""
    about = {"shape": asdict(adapter.shape), "base": adapter.base.as_dict(), "trained": dict(adapter.trained)}
    write_saved(KIND, directory, {**adapter.weights, "ranking": adapter.ranking.int()}, about)


def read_adapter(directory: Path) -> AdapterFile:
    """Raises ModelNotFound, and InvalidModelFile on a file that is none of ours, truncated, or of a newer version."""
    with read_saved(KIND, directory) as (about, tensors):
        shape, base = AdapterShape(**about["shape"]), Identity.from_dict(about["base"])
        ranking = tensors.pop("ranking")
        return AdapterFile(shape, base, tensors, ranking.long(), about.get("trained", {}))
