"""Requests that go on as chains: what native code is told of them, and the rows that it made of each."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import final

from torch import Tensor

from ....core.choice import Chooser
from ....core.forward import Rows
from ...packed.request import Request
from .views import ChainView


@final
class Chains:
    """One call's. All requests choose among equally many tokens."""

    def __init__(self, requests: Sequence[Request]) -> None:
        each = [1 + request.further for request in requests]
        rows = sum(each)
        self._most = (ctypes.c_int32 * len(each))(*each)
        self._made = (ctypes.c_int32 * len(each))()
        self._tokens, self._shares = (ctypes.c_int32 * rows)(), (ctypes.c_float * rows)()
        among = requests[0].chain.among if requests[0].chain else 0
        arrays = self._most, self._made, self._tokens, self._shares
        self.view = ChainView(*(ctypes.addressof(array) for array in arrays), among)

    def rows(
        self,
        logits: Tensor,
        hidden: Tensor,
        taps: dict[int, Tensor],
        requests: Sequence[Request],
        native: float,
        chooser: Chooser,
    ) -> list[Rows]:
        """Each request's rows, of those of all; native and chooser as in Rows."""
        found: list[Rows] = []
        row = state = 0
        for request, most, made in zip(requests, self._most, self._made, strict=True):
            end, given = row + made, request.part.n
            own = {layer: states[state : state + given + made - 1] for layer, states in taps.items()}
            found.append(
                Rows(
                    *(logits[row:end], hidden[row:end], own),
                    native=native,
                    chooser=chooser,
                    tokens=self._tokens[row:end],
                    shares=self._shares[row:end],
                )
            )
            row, state = row + most, state + given + most - 1
        return found
