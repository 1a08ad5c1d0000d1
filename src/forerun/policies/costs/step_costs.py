"""What a draft step and a verification cost: measured from the rounds so far, or given.

Measured: medians of the newest rounds, a draft step by its drafter and by whether it has a row of logits (a forward) or none
(lookup), a verification by its rows. Row counts that were rarely or never seen are estimated with a straight line through
the others. In a batch, what counts is the request's part of everyone's time (pack_costs.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, final

from ...core.cost import Cost
from ...core.values import Round
from .cost_line import FIRST_SLOPE
from .kept_costs import NOTHING, Drafting, KeptCosts
from .pack_costs import PackCosts, draft_seconds
from .times_by_rows import NEWEST, TimesByRows

KEPT_WORTH = 8.0  # a kept cost counts as so many rounds of a row count
# before anything was measured, in verifications of one row
FIRST_STEP = {True: 0.15, False: 0.001}


class StepCosts(ABC):
    """What a step and a verification take, all in one unit of time."""

    @abstractmethod
    def step(self, has_row: bool, drafter: str = "") -> float:
        """Of one draft step. drafter: whose, of several."""

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

    def learn(self, has_row: bool, steps: int, round: Round, drafter: str = "") -> None:  # noqa: B027
        """Learn from a round with this many steps, 0 where its draft doesn't tell what a step costs."""

    def learn_plain(self, seconds: Sequence[float]) -> None:  # noqa: B027
        """Learn from rounds that nothing was drafted in and that shared no forward, by their Timing.verify."""

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

    def step(self, has_row: bool, drafter: str = "") -> float:
        return self._step if has_row else 0.0

    def verify(self, rows: int) -> float:
        return self._verify(rows)


@final
class MeasuredStepCosts(StepCosts):
    """Learnt from Round.timing; the unit is a second."""

    def __init__(self) -> None:
        self._steps: dict[Drafting, TimesByRows] = {}
        self._rounds = TimesByRows()
        self._readings: deque[float] = deque(maxlen=NEWEST)  # of a token
        self._step: dict[Drafting, float] = {}
        self._verify: dict[int, float] = {}
        self._packs = PackCosts()
        self._kept = NOTHING

    def step(self, has_row: bool, drafter: str = "") -> float:
        one = drafter, has_row
        if one not in self._step:
            if one in self._steps:
                self._step[one] = self._steps[one].points[1][0]
            else:
                self._step[one] = self._kept.step.get(one, FIRST_STEP[has_row]) * self.verify(1)
        return self._step[one]

    def verify(self, rows: int) -> float:
        if self._packs.shared and self._packs.known:
            return self._packs.verify(rows)
        known = self._verify.get(rows)
        if known is None:
            known = self._verify[rows] = self._alone(rows)
        return known

    def _alone(self, rows: int) -> float:
        """Of a verification that shares no forward."""
        if not len(self._rounds):
            return self._kept.at(rows)
        return self._from_kept(rows) if self._kept.verify else self._rounds.of(rows)

    def read(self, rows: int) -> float:
        if self._readings:
            return self.step(True) + median(self._readings) * rows
        if self._kept.read is not None:
            return self.step(True) + self._kept.read * self.verify(1) * rows
        return super().read(rows) if len(self._rounds) else FIRST_STEP[True] * (1 + FIRST_SLOPE * (rows - 1))

    def learn_reading(self, rows: int, steps: int, round: Round) -> None:
        if round.timing.verify > 0:
            self._readings.append(max(round.timing.draft - steps * self.step(True), 0.0) / rows)

    def learn(self, has_row: bool, steps: int, round: Round, drafter: str = "") -> None:
        if round.timing.verify <= 0:  # a round that nobody timed
            return
        if steps:
            one = drafter, has_row
            if one not in self._steps:
                self._steps[one] = TimesByRows()
            if self._steps[one].add(1, draft_seconds(round) / steps):
                self._step.pop(one, None)
        known = self._packs.learn(round)
        if self._packs.shared:
            self._step.clear()
        elif known and self._rounds.add(len(round.draft) + 1, round.timing.verify):
            self._verify.clear()
            self._step.clear()

    def learn_plain(self, seconds: Sequence[float]) -> None:
        if seconds:
            self._packs.shared = False
        renewed = [self._rounds.add(1, time) for time in seconds if time > 0]
        if any(renewed):
            self._verify.clear()
            self._step.clear()

    def _from_kept(self, rows: int) -> float:
        own, tries = self._rounds.points.get(rows, (0.0, 0.0))
        return (own * tries + self._kept.at(rows) * self._unit() * KEPT_WORTH) / (tries + KEPT_WORTH)

    def _unit(self) -> float:
        """Of a verification of one row, by what others took beside those that were kept."""
        points = self._rounds.points
        if 1 in points:
            return points[1][0]
        total = sum(tries for _, tries in points.values())
        return sum(took / self._kept.at(int(rows)) * tries for rows, (took, tries) in points.items()) / total

    def as_data(self) -> Any:
        if not len(self._rounds):
            return self._kept.as_data()
        one = self._alone(1)
        verify = {rows: self._alone(rows) / one for rows in {*map(int, self._rounds.points), *self._kept.verify}}
        step = {
            (drafter, has_row): self.step(has_row, drafter) / one
            for drafter, has_row in {*self._steps, *self._kept.step}
        }
        read = median(self._readings) / one if self._readings else self._kept.read
        return KeptCosts(verify, step, read).as_data()

    def recall(self, data: Any) -> None:
        self._kept = KeptCosts.from_data(data)
        self._verify.clear()
        self._step.clear()


def given_costs(target: Cost, draft_ms: float, prefix: float | None = None) -> GivenStepCosts:
    """The costs of a measured cost curve, in milliseconds."""
    return GivenStepCosts(draft_ms, lambda rows: target.ms(rows, prefix))
