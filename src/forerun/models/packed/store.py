"""The keys and values of one sequence, addressed by slot.

A store doesn't know what its slots hold: Sequence knows which are prefix and which are scratch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor


class Store(ABC):
    """The slots of all layers. A runner makes the kind that its forward works with."""

    @abstractmethod
    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put keys and values [heads, n, width] at slot, slot + 1, ...; return all up to there [heads, slot + n, width]."""

    @abstractmethod
    def move(self, slots: Sequence[int], start: int) -> None:
        """Gather slots into start, start + 1, ..."""


@final
class LayerStore(Store):
    """Buffers [heads, capacity, width], one a layer, made when it first writes, doubled when they are full."""

    def __init__(self, num_layers: int, capacity: int) -> None:
        self.capacity = capacity
        self._keys: list[Tensor | None] = [None] * num_layers
        self._values: list[Tensor | None] = [None] * num_layers

    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        end = slot + keys.shape[1]
        return (
            self._put(self._keys, layer, slot, end, keys),
            self._put(self._values, layer, slot, end, values),
        )

    def _put(self, buffers: list[Tensor | None], layer: int, slot: int, end: int, rows: Tensor) -> Tensor:
        buffer = buffers[layer]
        if buffer is None or end > buffer.shape[1]:
            while end > self.capacity:
                self.capacity *= 2
            grown = rows.new_empty(rows.shape[0], self.capacity, rows.shape[2])
            if buffer is not None:
                grown[:, : buffer.shape[1]] = buffer
            buffers[layer] = buffer = grown
        buffer[:, slot:end] = rows
        return buffer[:, :end]

    @torch.inference_mode()
    def move(self, slots: Sequence[int], start: int) -> None:
        if list(slots) == list(range(start, start + len(slots))):
            return
        for buffers in (self._keys, self._values):
            for buffer in buffers:
                if buffer is not None:
                    index = torch.tensor(slots, device=buffer.device)
                    buffer[:, start : start + len(slots)] = buffer[:, index]


@final
class NoStore(Store):
    """Keeps nothing: for rows that attend only to themselves and are discarded."""

    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if slot:
            raise ValueError(f"rows that nothing keeps begin at slot 0, got {slot}")
        return keys, values

    def move(self, slots: Sequence[int], start: int) -> None:
        """Nothing is kept, so nothing moves."""
