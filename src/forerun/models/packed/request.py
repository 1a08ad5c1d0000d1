"""What a sequence asks of a driver, and how coroutines ask."""

from __future__ import annotations

import types
from collections.abc import Generator, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from .forward import Part
from .plan import FULL, LayerPlan

if TYPE_CHECKING:
    from .runner import Runner


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What a forward gives for the wanted rows of one request, in order.

    logits [n, V]; hidden [n, D], the input of the output head; taps: layer -> [n_all, D], of all rows. seconds: from the
    request to these rows.
    """

    logits: Tensor
    hidden: Tensor
    taps: dict[int, Tensor] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One sequence's rows for one forward. want: for how many of the last rows the head runs.

    drafting says that this is part of a draft: verifications wait for it, so that a batch stays in phase.
    """

    runner: Runner
    tokens: tuple[int, ...]
    part: Part
    want: int
    plan: LayerPlan = FULL
    taps: frozenset[int] = frozenset()
    drafting: bool = False

    @property
    def packs_with(self) -> Hashable:
        """Requests with an equal value can share a forward."""
        return id(self.runner), self.plan, self.taps


@types.coroutine
def submit(request: Request) -> Generator[Request, Rows, Rows]:
    """Suspend with a request; the driver resumes with its rows."""
    return (yield request)
