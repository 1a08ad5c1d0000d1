"""What a draft step and a verification cost: measured from the rounds so far, or given.

Measured: medians of the newest rounds, a draft step by whether it has a row of logits (a forward) or none (lookup), a
verification by its rows. Row counts that were rarely or never seen are estimated with a straight line through the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import final

from ..core.cost import Cost
from ..core.values import Round

NEWEST = 32
LINE_WORTH = 3.0  # the line counts as so many rounds of a row count
# before anything was measured, in verifications of one row
FIRST_SLOPE, SLOPE_WORTH = 0.05, 4.0
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


@dataclass(frozen=True, slots=True)
class Line:
    """y by x: a straight line through (mid_x, mid_y), nowhere below least."""

    mid_x: float
    mid_y: float
    slope: float
    least: float

    def at(self, x: float) -> float:
        return max(self.mid_y + self.slope * (x - self.mid_x), self.least)


@final
class TimesByRows:
    """Times by a number of rows. slope: of the line before anything was seen, a row, in times of one row."""

    def __init__(self, slope: float = FIRST_SLOPE) -> None:
        self._first_slope = slope
        self._seen: dict[float, deque[float]] = {}
        self._points: dict[float, tuple[float, float]] = {}  # rows -> (median, times)
        self._line: Line | None = None
        self._known: dict[float, float] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, rows: float, time: float) -> None:
        seen = self._seen.setdefault(rows, deque(maxlen=NEWEST))
        seen.append(time)
        self._points[rows] = median(seen), float(len(seen))
        self._line = None
        self._known.clear()

    def of(self, rows: float) -> float:
        """1 before anything was seen."""
        if not self._seen:
            return 1.0
        if rows not in self._known:
            own, tries = self._points.get(rows, (0.0, 0.0))
            self._known[rows] = (own * tries + self.line.at(rows) * LINE_WORTH) / (tries + LINE_WORTH)
        return self._known[rows]

    @property
    def line(self) -> Line:
        if self._line is None:
            self._line = line_through(self._points, self._first_slope)
        return self._line


@final
class MeasuredStepCosts(StepCosts):
    """Learnt from Round.timing; the unit is a second."""

    def __init__(self) -> None:
        self._steps: dict[bool, deque[float]] = {}
        self._rounds = TimesByRows()
        self._readings: deque[float] = deque(maxlen=NEWEST)  # of a token
        self._step: dict[bool, float] = {}

    def step(self, has_row: bool) -> float:
        if has_row not in self._step:
            seen = self._steps.get(has_row)
            self._step[has_row] = median(seen) if seen else FIRST_STEP[has_row] * self.verify(1)
        return self._step[has_row]

    def verify(self, rows: int) -> float:
        return self._rounds.of(rows)

    def read(self, rows: int) -> float:
        if self._readings:
            return self.step(True) + median(self._readings) * rows
        return super().read(rows) if len(self._rounds) else FIRST_STEP[True] * (1 + FIRST_SLOPE * (rows - 1))

    def learn_reading(self, rows: int, steps: int, round: Round) -> None:
        if round.timing.verify > 0:
            self._readings.append(max(round.timing.draft - steps * self.step(True), 0.0) / rows)

    def learn(self, has_row: bool, steps: int, round: Round) -> None:
        if round.timing.verify <= 0:  # a round that nobody timed
            return
        if steps:
            self._steps.setdefault(has_row, deque(maxlen=NEWEST)).append(round.timing.draft / steps)
        self._rounds.add(len(round.draft) + 1, round.timing.verify)
        self._step.clear()


def given_costs(target: Cost, draft_ms: float, prefix: float | None = None) -> GivenStepCosts:
    """The costs of a measured cost curve, in milliseconds."""
    return GivenStepCosts(draft_ms, lambda rows: target.ms(rows, prefix))


def line_through(points: Mapping[float, tuple[float, float]], first_slope: float = FIRST_SLOPE) -> Line:
    """The line through x -> (y, weight) with the least squares; it never falls."""
    total = sum(weight for _, weight in points.values())
    mid_x = sum(at * weight for at, (_, weight) in points.items()) / total
    mid_y = sum(y * weight for y, weight in points.values()) / total
    spread = sum(weight * (at - mid_x) ** 2 for at, (_, weight) in points.items())
    rise = sum(weight * (at - mid_x) * (y - mid_y) for at, (y, weight) in points.items())
    expected = first_slope * mid_y / (1 + first_slope * (mid_x - 1))
    slope = max((rise + SLOPE_WORTH * expected) / (spread + SLOPE_WORTH), 0.0)
    return Line(mid_x, mid_y, slope, min(y for y, _ in points.values()) / 2)
