"""A packed forward: the rows of several sequences laid flat, [1, T], without padding.

A Part is one sequence's rows in it. Rows that resume (their first layers were computed while drafting) come first in their
part and skip the layers below `enter`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from ...errors import UnsupportedModel
from .mask import Pattern, visible
from .plan import FULL, LayerPlan
from .store import Store


@dataclass(slots=True, eq=False)
class Part:
    """n rows of one sequence after `committed` prefix slots.

    ancestors [n, first + n]: which scratch rows (first old ones, then these) each row sees, itself included; None for a
    plain chain. depths: positions after the prefix, of all scratch rows. entry: hidden states [resumed, D] with which
    the leading rows enter layer `enter`. states [n, D]: further input of a runner besides the tokens, if it has any.
    """

    store: Store
    committed: int
    first: int
    n: int
    depths: list[int]
    ancestors: Tensor | None = None
    entry: Tensor | None = None
    enter: int = 0
    states: Tensor | None = None
    _biases: dict[tuple[Pattern, int], Tensor | None] = field(default_factory=dict)

    @property
    def resumed(self) -> int:
        return 0 if self.entry is None else self.entry.shape[0]

    def idle(self, layer: int) -> int:
        """How many leading rows skip this layer."""
        return self.resumed if layer < self.enter else 0

    def bias(self, pattern: Pattern, idle: int, like: Tensor) -> Tensor | None:
        """What is added to the scores, [n - idle, slots], 0 or -inf; None if every row sees every slot."""
        key = (pattern, idle)
        if key not in self._biases:
            seen = visible(pattern, self.committed, self.depths, self.n - idle, self.ancestors)
            bias = None
            if seen is not None:
                bias = torch.zeros(seen.shape, dtype=like.dtype, device=like.device)
                bias.masked_fill_(~seen.to(like.device), -torch.inf)
            self._biases[key] = bias
        return self._biases[key]


@dataclass(slots=True, eq=False)
class Packed:
    """The state of one packed forward. It is passed through the model's keyword arguments; nothing is global.

    taps are the layers whose input is kept (layer L: the last layer's output); hidden holds them afterwards,
    [T, D] each; patterns holds the masks that layers were given. head_input [1, wanted, D] is what the output head read.
    """

    parts: list[Part]
    plan: LayerPlan = FULL
    taps: frozenset[int] = frozenset()
    hidden: dict[int, Tensor] = field(default_factory=dict)
    layers_seen: set[int] = field(default_factory=set)
    head_input: Tensor | None = None
    patterns: dict[int, Pattern] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return sum(part.n for part in self.parts)

    def active(self, layer: int) -> list[int] | None:
        """The flat rows that run in a layer, None for all."""
        if not any(part.idle(layer) for part in self.parts):
            return None
        rows: list[int] = []
        offset = 0
        for part in self.parts:
            rows.extend(range(offset + part.idle(layer), offset + part.n))
            offset += part.n
        return rows

    def bring_entries(self, hidden: Tensor) -> Tensor:
        """Put the states of resumed rows into hidden [1, T, D], unchanged until their layer."""
        if all(part.entry is None for part in self.parts):
            return hidden
        hidden = hidden.clone()
        offset = 0
        for part in self.parts:
            if part.entry is not None:
                hidden[0, offset : offset + part.resumed] = part.entry
            offset += part.n
        return hidden


@final
class Running(threading.local):
    """The packed forward of the calling thread, for modules that get no keyword arguments."""

    packed: Packed | None = None

    @contextmanager
    def during(self, packed: Packed) -> Iterator[None]:
        """Sets packed for the block, in this thread only."""
        self.packed = packed
        try:
            yield
        finally:
            self.packed = None


@dataclass(frozen=True, slots=True, eq=False)
class PackedMask:
    """What a decoder layer gets as its mask: the pattern and the packed forward."""

    pattern: Pattern
    packed: Packed

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedModel(f"a layer works on its mask itself (its {name}), beside its attention function")
