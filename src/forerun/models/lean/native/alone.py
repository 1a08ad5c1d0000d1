"""A forward of one text's chain, which is what most rounds ask for: what it points to is kept from one to the next.

Such a forward of a small model takes two milliseconds, and after it little of Python is left in the processor's caches. So
what counts here is how few objects and lines it takes.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int32
from math import inf
from typing import final

from ...packed.request import Request
from .store import BlockStore
from .views import CallView, PartView

MOST = 32  # rows


def goes_alone(request: Request) -> bool:
    """Whether it asks for the rows after each token of a chain that follows the prefix, and for nothing else."""
    part = request.part
    return (
        part.first == 0
        and request.want == part.n <= MOST
        and request.chain is None
        and not request.taps
        and part.ancestors is None
        and part.entry is None
    )


@final
class Alone:
    """The call of such requests under one plan. It is filled and run by one thread at a time."""

    def __init__(self, call: CallView) -> None:
        """call: one of this plan without taps, which outlives this one."""
        self._tokens = (c_int32 * MOST)()
        self._places = (c_int32 * MOST)(*range(MOST))
        self._values, self._best = (c_float * MOST)(), (c_int32 * MOST)()
        self._view = view = PartView()
        view.depths = ctypes.addressof(self._places)
        self.call = own = CallView.from_buffer_copy(call)
        own.parts = ctypes.pointer(view)
        own.num_parts = 1
        own.tokens, own.wanted = ctypes.addressof(self._tokens), ctypes.addressof(self._places)
        own.best_values, own.best_tokens = ctypes.addressof(self._values), ctypes.addressof(self._best)

    def fill(self, request: Request, store: BlockStore) -> None:
        part, view, call = request.part, self._view, self.call
        count = part.n
        view.keys, view.values = store.reserve(part.committed + count)
        view.capacity, view.committed, view.n, view.half = store.capacity, part.committed, count, store.half
        self._tokens[:count] = list(request.tokens)
        call.rows = call.num_wanted = count

    def best(self, count: int) -> tuple[list[float], list[int]]:
        """The largest logit of each of the rows and its token."""
        return self._values[:count], self._best[:count]


def all_laws(values: list[float]) -> bool:
    """Whether rows with these largest logits are laws: none is NaN, and a token is possible."""
    # no float64 sum of float32 numbers overflows
    return sum(values) > -inf
