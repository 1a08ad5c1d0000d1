"""A sequence's request to a driver: its rows for one forward."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ...core.forward import Executor
from .forward import Part
from .plan import FULL, LayerPlan


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One sequence's rows for one forward. want: the number of last rows for which the head runs.

    drafting: it is part of a draft, and verifications wait for it, so that a batch stays in phase. reads: as in
    core.forward.Request.
    """

    runner: Executor
    tokens: tuple[int, ...]
    part: Part
    want: int
    plan: LayerPlan = FULL
    taps: frozenset[int] = frozenset()
    drafting: bool = False
    reads: int = 0

    @property
    def packs_with(self) -> Hashable:
        """Requests with an equal value can share a forward."""
        return id(self.runner), self.plan, self.taps
