"""A sequence's request to a driver: its rows for one forward."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ...core.forward import Executor
from .forward import Part
from .plan import FULL, LayerPlan


@dataclass(frozen=True, slots=True)
class Chain:
    """Rows that go on by themselves: each further one reads the best token of the row before it.

    rows: of logits in all, at least 1. among: of how many tokens, from 0 on, a token is the best. guesses: what the rows may
    follow; then one forward computes a row after each, and those after a wrong one are dropped.
    """

    rows: int
    among: int
    guesses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One sequence's rows for one forward. want: the number of last rows for which the head runs.

    drafting: it is part of a draft, and verifications wait for it, so that a batch stays in phase. chain: how the last row
    goes on, for a runner that chains; want is 1 then. reads: as in core.forward.Request.
    """

    runner: Executor
    tokens: tuple[int, ...]
    part: Part
    want: int
    plan: LayerPlan = FULL
    taps: frozenset[int] = frozenset()
    drafting: bool = False
    chain: Chain | None = None
    reads: int = 0

    @property
    def further(self) -> int:
        """How many rows follow those that are given, at most."""
        return 0 if self.chain is None else self.chain.rows - 1

    @property
    def packs_with(self) -> Hashable:
        """Requests with an equal value can share a forward."""
        return id(self.runner), self.plan, self.taps, self.chain and self.chain.among
