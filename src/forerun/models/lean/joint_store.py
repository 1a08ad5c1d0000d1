"""Keys and values of all layers of one sequence in one buffer, for decoders whose layers are alike.

One view of the buffer, split by layers, gives every layer's slots at once, and moving rows is one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from ..packed.store import Store

Layers = tuple[Tensor, ...]


@final
class JointStore(Store):
    """A float32 buffer [layers, 2 * heads, capacity, width], keys before values, made on first use, doubled when full.

    It starts as zeros: slots that are masked are read all the same.
    """

    def __init__(self, num_layers: int, heads: int, width: int, capacity: int) -> None:
        self.capacity = capacity
        self._layers = num_layers
        self._heads = heads
        self._width = width
        self._buffer: Tensor | None = None
        # the views that were read last and their length, which stays for some steps of a growing text
        self._read: tuple[int, Layers, Layers] | None = None

    def views(self, start: int, end: int, length: int) -> tuple[Layers, Layers, Layers]:
        """A layer each: slots start..end to write [n, 2 * heads, width], and the first `length` slots to read, as keys
        [heads, width, length] and values [heads, length, width]. They must be reserved.
        """
        assert self._buffer is not None, "reserve slots before they are used"
        if self._read is None or self._read[0] != length:
            keys = self._buffer[:, : self._heads, :length].mT.unbind()
            self._read = length, keys, self._buffer[:, self._heads :, :length].unbind()
        return self._buffer[:, :, start:end].transpose(1, 2).unbind(), self._read[1], self._read[2]

    def reserve(self, length: int, device: torch.device) -> None:
        """Hold at least this many slots; what was held stays. Views made before see none of what comes."""
        if self._buffer is not None and length <= self._buffer.shape[2]:
            return
        while length > self.capacity:
            self.capacity *= 2
        grown = torch.zeros(self._layers, 2 * self._heads, self.capacity, self._width, device=device)
        if self._buffer is not None:
            grown[:, :, : self._buffer.shape[2]] = self._buffer
        self._buffer, self._read = grown, None

    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        end = slot + keys.shape[1]
        self.reserve(end, keys.device)
        assert self._buffer is not None
        own = self._buffer[layer]
        own[: self._heads, slot:end] = keys
        own[self._heads :, slot:end] = values
        return own[: self._heads, :end], own[self._heads :, :end]

    @torch.inference_mode()
    def move(self, slots: Sequence[int], start: int) -> None:
        if self._buffer is None or list(slots) == list(range(start, start + len(slots))):
            return
        index = torch.tensor(slots, device=self._buffer.device)
        self._buffer[:, :, start : start + len(slots)] = self._buffer[:, :, index]
