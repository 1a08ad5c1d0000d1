"""What a draft step and a verification cost: measured from the rounds so far, or given.

Measured: medians of the newest rounds, a draft step by whether it has a row of logits (a forward) or none (lookup), a
verification by its rows. Row counts that were rarely or never seen are estimated with a straight line through the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any, final

from ..core.cost import Cost
from ..core.values import Round
from .cost_line import FIRST_SLOPE, Line, line_through
from .kept_costs import NOTHING, KeptCosts

NEWEST = 32
LINE_WORTH, KEPT_WORTH = 3.0, 8.0  # the line, and a kept cost, count as so many rounds of a row count
# before anything was measured, in verifications of one row
FIRST_STEP = {True: 0.15, False: 0.001}


class StepCosts(ABC):
    """What a step and a verification take, all in one unit of time."""

    @abstractmethod
    def step(self, has_row: bool) -> float:
        """Of one draft step."""

    @abstractmethod
    def verify(self, rows: int) -> float:
        """Of everything after the draft, for the pending token and rows - 1 drafted ones."""

    def read(self, rows: int) -> float:
        """Of the drafter's first forward, which reads this many tokens. By default its cost relative to a step is that of a
        verification of as many rows relative to one row.
        """
        return self.step(True) * self.verify(rows) / self.verify(1)

    def learn_reading(self, rows: int, steps: int, round: Round) -> None:  # noqa: B027
        """Learn from a round with this many steps, whose draft first read `rows` tokens."""

    def learn(self, has_row: bool, steps: int, round: Round) -> None:  # noqa: B027
        """Learn from a round with this many steps."""

    def as_data(self) -> Any:
        """What was measured, in plain rounds; None where nothing was."""
        return None

    def recall(self, data: Any) -> None:  # noqa: B027
        """Start from what as_data gave. Raises ValueError where it isn't that."""


@final
class GivenStepCosts(StepCosts):
    """Known costs: of a draft step with a row, and of a verification by rows."""

    def __init__(self, step: float, verify: Callable[[int], float]) -> None:
        self._step = step
        self._verify = verify

    def step(self, has_row: bool) -> float:
        return self._step if has_row else 0.0

    def verify(self, rows: int) -> float:
        return self._verify(rows)


@final
class MeasuredStepCosts(StepCosts):
    """Learnt from Round.timing; the unit is a second."""

    def __init__(self) -> None:
        self._steps: dict[bool, deque[float]] = {}
        self._rounds: dict[int, deque[float]] = {}
        self._points: dict[int, tuple[float, float]] = {}  # rows -> (median, rounds)
        self._readings: deque[float] = deque(maxlen=NEWEST)  # of a token
        self._line: Line | None = None
        self._step: dict[bool, float] = {}
        self._verify: dict[int, float] = {}
        self._unread: dict[int, None] = {}  # rows of rounds that the medians do not hold yet
        self._kept = NOTHING

    def step(self, has_row: bool) -> float:
        if self._unread:
            self._refresh()
        if has_row not in self._step:
            seen = self._steps.get(has_row)
            first = self._kept.step.get(has_row, FIRST_STEP[has_row]) * self.verify(1)
            self._step[has_row] = median(seen) if seen else first
        return self._step[has_row]

    def verify(self, rows: int) -> float:
        if not self._rounds:
            return self._kept.at(rows)
        if self._unread:
            self._refresh()
        if rows not in self._verify:
            self._verify[rows] = self._estimate(rows)
        return self._verify[rows]

    def read(self, rows: int) -> float:
        if self._readings:
            return self.step(True) + median(self._readings) * rows
        if self._kept.read is not None:
            return self.step(True) + self._kept.read * self.verify(1) * rows
        return super().read(rows) if self._rounds else FIRST_STEP[True] * (1 + FIRST_SLOPE * (rows - 1))

    def learn_reading(self, rows: int, steps: int, round: Round) -> None:
        if round.timing.verify > 0:
            self._readings.append(max(round.timing.draft - steps * self.step(True), 0.0) / rows)

    def learn(self, has_row: bool, steps: int, round: Round) -> None:
        if round.timing.verify <= 0:  # a round that nobody timed
            return
        if steps:
            self._steps.setdefault(has_row, deque(maxlen=NEWEST)).append(round.timing.draft / steps)
        rows = len(round.draft) + 1
        self._rounds.setdefault(rows, deque(maxlen=NEWEST)).append(round.timing.verify)
        self._unread[rows] = None

    def _refresh(self) -> None:
        """Read the rounds that were learnt since this was asked last."""
        for rows in self._unread:
            seen = self._rounds[rows]
            self._points[rows] = median(seen), float(len(seen))
        self._unread.clear()
        self._line = None
        self._step.clear()
        self._verify.clear()

    def _estimate(self, rows: int) -> float:
        own, tries = self._points.get(rows, (0.0, 0.0))
        if not self._kept.verify:
            if self._line is None:
                self._line = line_through(self._points)
            other, worth = self._line.at(rows), LINE_WORTH
        else:
            other, worth = self._kept.at(rows) * self._unit(), KEPT_WORTH
        return (own * tries + other * worth) / (tries + worth)

    def _unit(self) -> float:
        """Of a verification of one row, by what others took beside those that were kept."""
        if 1 in self._points:
            return self._points[1][0]
        total = sum(tries for _, tries in self._points.values())
        return sum(took / self._kept.at(rows) * tries for rows, (took, tries) in self._points.items()) / total

    def as_data(self) -> Any:
        if not self._rounds:
            return self._kept.as_data()
        self._refresh()
        one = self.verify(1)
        verify = {rows: self.verify(rows) / one for rows in {*self._points, *self._kept.verify}}
        step = {has_row: self.step(has_row) / one for has_row in {*self._steps, *self._kept.step}}
        read = median(self._readings) / one if self._readings else self._kept.read
        return KeptCosts(verify, step, read).as_data()

    def recall(self, data: Any) -> None:
        self._kept = KeptCosts.from_data(data)


def given_costs(target: Cost, draft_ms: float, prefix: float | None = None) -> GivenStepCosts:
    """The costs of a measured cost curve, in milliseconds."""
    return GivenStepCosts(draft_ms, lambda rows: target.ms(rows, prefix))
