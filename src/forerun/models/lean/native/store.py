"""Keys and values of one sequence in the order in which the native step reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from ....errors import UnsupportedModel
from ...packed.store import Store
from .matrix import LANES

SLOTS = 64


@final
class BlockStore(Store):
    """float32; keys [layers, heads, slots / 16, width, 16], values [layers, heads, slots, width up to a multiple of 16].

    Made on first use, doubled when full. It starts as zeros: whole blocks are read, and what isn't seen counts nothing.
    """

    def __init__(self, num_layers: int, heads: int, width: int, capacity: int) -> None:
        self.capacity = -(-capacity // SLOTS) * SLOTS
        self.form = num_layers, heads, width
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def reserve(self, length: int) -> tuple[int, int]:
        """Hold at least this many slots; the addresses of keys and values, until the next call."""
        if self._keys is None or self._values is None or length > self.capacity:
            self._grow(length)
        assert self._keys is not None
        assert self._values is not None
        return self._keys.data_ptr(), self._values.data_ptr()

    def _grow(self, length: int) -> None:
        while length > self.capacity:
            self.capacity *= 2
        layers, heads, width = self.form
        keys = torch.zeros(layers, heads, self.capacity // LANES, width, LANES)
        values = torch.zeros(layers, heads, self.capacity, -(-width // LANES) * LANES)
        if self._keys is not None and self._values is not None:
            keys[:, :, : self._keys.shape[2]] = self._keys
            values[:, :, : self._values.shape[2]] = self._values
        self._keys, self._values = keys, values

    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        raise UnsupportedModel("this sequence was made for another runner; make it with the one that runs it")

    def move(self, slots: Sequence[int], start: int) -> None:
        if self._keys is None or self._values is None or list(slots) == list(range(start, start + len(slots))):
            return
        old, new = torch.tensor(slots), torch.arange(start, start + len(slots))
        self._values[:, :, new] = self._values[:, :, old]
        blocks, lanes = new // LANES, new % LANES
        self._keys[:, :, blocks, :, lanes] = self._keys[:, :, old // LANES, :, old % LANES]
