"""What drafting costs at vLLM's present load: a forward serves all requests, so a row's price grows with their number.

A round of B requests with R rows in all counts for each as one of R / B rows. Its time is told in plain rounds of as many
requests. So where forwards are bound by memory (few requests) further rows are nearly free, and where they are bound by
arithmetic (many) each costs its share, and a length policy weighs its next token by that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from statistics import median
from typing import final

from ...core.values import Round, Step
from ...policies.costs.cost_line import FIRST_SLOPE
from ...policies.costs.step_costs import FIRST_STEP, StepCosts
from ...policies.costs.times_by_rows import NEWEST, TimesByRows

QUARTERS = 4  # of a row, by which rounds are told apart
Drafting = tuple[str, bool]  # which of several drafters, and whether its tokens have rows of a model


@final
@dataclass(frozen=True, slots=True)
class BatchRound:
    """A round of all requests: how many, the tokens drafted and emitted; the seconds of drafting, and of vLLM's part.

    drafters: of each, its tokens and the seconds of a model's forwards for them.
    """

    requests: int
    drafted: int
    emitted: int
    draft_seconds: float
    seconds: float
    held_back: bool
    drafters: Mapping[Drafting, tuple[int, float]] = field(default_factory=dict)


def drafters_of(drafts: Sequence[Sequence[Step]]) -> dict[Drafting, tuple[int, float]]:
    """As a BatchRound has them, of the drafts of all requests."""
    found: dict[Drafting, tuple[int, float]] = {}
    for steps in drafts:
        for step in steps:
            one = step.drafted_by, step.logits is not None
            tokens, seconds = found.get(one, (0, 0.0))
            found[one] = tokens + 1, seconds + step.forward_seconds
    return found


def load_of(requests: int) -> int:
    """Numbers of requests that count as one load: neighbours differ by a factor of 1.4."""
    return round(2 * log2(requests))


@final
class LoadCosts(StepCosts):
    """requests: the present load, which the costs are for. The unit is a plain round of so many requests."""

    def __init__(self) -> None:
        self.requests = 1
        self._plain = TimesByRows()
        self._rounds: dict[int, TimesByRows] = {}
        self._steps: dict[tuple[int, Drafting], deque[float]] = {}
        self._known: dict[tuple[int, Drafting], float] = {}

    def plain_seconds(self, requests: int) -> float:
        return self._plain.of(requests)

    def step(self, has_row: bool, drafter: str = "") -> float:
        """Of a token for each request."""
        one = load_of(self.requests), (drafter, has_row)
        if one not in self._known:
            seen = self._steps.get(one)
            self._known[one] = median(seen) if seen else FIRST_STEP[has_row]
        return self._known[one]

    def verify(self, rows: int) -> float:
        load = load_of(self.requests)
        if load in self._rounds:
            return self._rounds[load].of(_quarters(rows))
        return 1 + self._nearest_slope(load) * (rows - 1)

    def learn_round(self, round: BatchRound) -> None:
        """Only of rounds in which nobody's prompt was read."""
        if not round.drafted:
            self._plain.add(round.requests, round.seconds)
        if not len(self._plain):
            return
        load, plain = load_of(round.requests), self._plain.of(round.requests)
        if load not in self._rounds:
            self._rounds[load] = TimesByRows(self._nearest_slope(load) / QUARTERS)
        self._rounds[load].add(_quarters(1 + round.drafted / round.requests), round.seconds / plain)
        if round.drafted:
            self._learn_steps(load, round, plain)

    def _learn_steps(self, load: int, round: BatchRound, plain: float) -> None:
        """A model's forwards are its drafter's; all else that drafting took counts for each token alike."""
        drafters = round.drafters or {("", False): (round.drafted, 0.0)}
        else_seconds = max(round.draft_seconds - sum(seconds for _, seconds in drafters.values()), 0.0)
        for drafting, (tokens, seconds) in drafters.items():
            a_token_each = (seconds / tokens + else_seconds / round.drafted) * round.requests
            self._steps.setdefault((load, drafting), deque(maxlen=NEWEST)).append(a_token_each / plain)
            self._known.pop((load, drafting), None)

    def learn(self, has_row: bool, steps: int, round: Round, drafter: str = "") -> None:
        """Nothing: a request's own round has no time of its own."""

    def _nearest_slope(self, load: int) -> float:
        """Of the load next to this one that was seen: plain rounds a further row."""
        if not self._rounds:
            return FIRST_SLOPE
        nearest = min(self._rounds, key=lambda seen: abs(seen - load))
        return self._rounds[nearest].line.slope * QUARTERS


def _quarters(rows: float) -> float:
    """Rows counted in quarters from the first one on, so that differences of a part of a row weigh as whole ones do."""
    return 1 + round(QUARTERS * (rows - 1))
