"""The states of a sequence at one layer: a row for each slot, beside the keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor


@final
class States:
    """A buffer [slots, D], made on first use and doubled when full.

    known is the number of leading slots that hold states. Rows after them stay as they came until they are kept: a draft's
    are dropped, mostly, and a copy for each of its tokens would cost more than the one for all that were verified.
    """

    def __init__(self) -> None:
        self.known = 0
        self._buffer: Tensor | None = None
        self._late: list[tuple[int, Tensor]] = []

    def write(self, slot: int, rows: Tensor) -> None:
        """Hold the rows from this slot on, and none that were held there or after."""
        while self._late and self._late[-1][0] >= slot:
            self._late.pop()
        self._late.append((slot, rows))

    @torch.inference_mode()
    def move(self, slots: Sequence[int], start: int) -> None:
        """Bring these slots, ascending, to start and those after it; they are known from then on."""
        for slot, rows in self._late:
            self._put(slot, rows)
        self._late.clear()
        if self._buffer is not None and list(slots) != list(range(start, start + len(slots))):
            self._buffer[start : start + len(slots)] = self._buffer[list(slots)]
        self.known = start + len(slots)

    def _put(self, slot: int, rows: Tensor) -> None:
        end = slot + rows.shape[0]
        if self._buffer is None or end > self._buffer.shape[0]:
            held = 0 if self._buffer is None else self._buffer.shape[0]
            grown = rows.new_empty(max(end, 2 * held, 64), rows.shape[1])
            if self._buffer is not None:
                grown[:held] = self._buffer
            self._buffer = grown
        self._buffer[slot:end] = rows

    def forget(self, length: int) -> None:
        """Only the first `length` slots are known from now on, if as many were."""
        self.known = min(self.known, length)
        self._late.clear()

    def first(self, length: int) -> Tensor:
        """States [length, D] of the first slots; ValueError where they are not known."""
        if self._buffer is None or length > self.known:
            raise ValueError(f"states are known of {self.known} tokens, and {length} were asked for")
        return self._buffer[:length]
