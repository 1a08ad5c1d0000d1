"""Keys and values of one sequence in the order in which the native step reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from ....errors import UnsupportedModel
from ...packed.store import Store
from .matrix import LANES

SLOTS = 64


@final
class BlockStore(Store):
    """float32; keys [layers, heads, slots / 16, width, 16], values [layers, heads, slots, width up to a multiple of 16].

    half: bfloat16, 32 at a time in place of 16, in pairs [16, 2]: of keys two slots, of values two components, 16 apart.
    Made on first use, doubled when full. It starts as zeros: whole blocks are read, and what isn't seen counts nothing.
    """

    def __init__(self, num_layers: int, heads: int, width: int, capacity: int, half: bool = False) -> None:
        self.capacity = -(-capacity // SLOTS) * SLOTS
        self.form = num_layers, heads, width
        self.half = half
        self._each = 2 * LANES if half else LANES
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self._addresses: tuple[int, int] | None = None

    def reserve(self, length: int) -> tuple[int, int]:
        """Hold at least this many slots; the addresses of keys and values, until the next call."""
        if self._addresses is None or length > self.capacity:
            self._addresses = self._grow(length)
        return self._addresses

    def _grow(self, length: int) -> tuple[int, int]:
        while length > self.capacity:
            self.capacity *= 2
        layers, heads, width = self.form
        each = self._each
        keys = _zeros((layers, heads, self.capacity // each, width, each), self.half)
        values = _zeros((layers, heads, self.capacity, -(-width // each) * each), self.half)
        if self._keys is not None and self._values is not None:
            keys[:, :, : self._keys.shape[2]] = self._keys
            values[:, :, : self._values.shape[2]] = self._values
        self._keys, self._values = keys, values
        return keys.data_ptr(), values.data_ptr()

    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        raise UnsupportedModel("this sequence was made for another runner; make it with the one that runs it")

    def move(self, slots: Sequence[int], start: int) -> None:
        """Raises ValueError on slots that are not in ascending order from `start` on."""
        if any(slot <= before for before, slot in zip([start - 1, *slots], slots, strict=False)):
            raise ValueError(f"slots move in ascending order, from {start} on, got {list(slots)}")
        moved = [(new, old) for new, old in enumerate(slots, start) if new != old]
        # an accepted chain lies where it shall be
        if not moved or self._keys is None or self._values is None:
            return
        keys, values = _numbers(self._keys), _numbers(self._values)
        for new, old in moved:
            # none of those that are still to come is overwritten
            values[:, :, new] = values[:, :, old]
            keys[:, :, new // self._each, :, self._lane(new)] = keys[:, :, old // self._each, :, self._lane(old)]

    def _lane(self, slot: int) -> int:
        """Where a slot's keys stand among those that it shares a block with."""
        return slot % LANES * (self._each // LANES) + slot % self._each // LANES


def _zeros(shape: tuple[int, ...], half: bool) -> Tensor:
    # numpy's come untouched from the system, so that growing takes no time for what isn't used yet
    rows = torch.from_numpy(np.zeros(shape, np.uint16 if half else np.float32))
    return rows.view(torch.bfloat16) if half else rows


def _numbers(rows: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """The same memory, without the cost of torch's indexing."""
    numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]] = (
        rows.view(torch.uint16) if rows.dtype == torch.bfloat16 else rows
    ).numpy()
    return numbers
