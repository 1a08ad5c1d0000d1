"""Everything that a tuning run times: verification by rows, drafted tokens, sublayers, and whole answers.

All other decisions depend on counts, not times. So tests pass another machine and get reproducible results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from ..bench.calibrate import Subject, measure
from ..core.cost import Cost
from ..engine.engine import Engine
from ..engine.request import RequestOptions
from ..engine.timing import timed_answer
from ..models.packed.plan import LayerPlan
from .skipping.match_rate import PlanCost, measure_plan_cost
from .skipping.search import WallClock
from .skipping.storage import timing_lock

ROWS = (1, 2, 3, 4, 5, 7, 9, 13)
REPEATS = 5
PROBED_LENGTH, PROBED_TOKENS = 4, 17


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer: its tokens after the first, their seconds, and what the rounds came to."""

    decoded: int
    seconds: float
    rounds: int
    drafted: int
    accepted: int
    draft_seconds: float
    verify_seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Machine(ABC):
    """Times engines that share one model."""

    @abstractmethod
    def verify_cost(self, engine: Engine, prefix: int) -> Cost:
        """Milliseconds of the target's forwards by rows, after so many tokens."""

    @abstractmethod
    def plan_cost(self, engine: Engine, ids: Sequence[int]) -> PlanCost:
        """What leaving out sublayers saves."""

    @abstractmethod
    def step_ms(self, engine: Engine, drafter: str, ids: Sequence[int]) -> float:
        """Milliseconds of a drafted token after a prompt; drafter is its name."""

    @abstractmethod
    def skip_price(self, engine: Engine, prompts: Sequence[Sequence[int]]) -> Callable[[LayerPlan], float]:
        """Time per verified token of drafting with a skip set."""

    @abstractmethod
    def answer(self, engine: Engine, candidate: str, ids: Sequence[int], max_new_tokens: int) -> Sample:
        """One answer from its first token, with nothing kept from the one before; candidate is the method's name."""


@final
class ThisMachine(Machine):
    """The wall clock. A lock keeps other runs of this user from timing at the same time."""

    def verify_cost(self, engine: Engine, prefix: int) -> Cost:
        weights = str(engine.runner.dtype).removeprefix("torch.")
        with timing_lock():
            return measure(
                [Subject(engine.runner, engine.name, weights)], repeats=REPEATS, rows=ROWS, lengths=(prefix,)
            ).target

    def plan_cost(self, engine: Engine, ids: Sequence[int]) -> PlanCost:
        with timing_lock():
            return measure_plan_cost(engine.runner, ids)

    def step_ms(self, engine: Engine, drafter: str, ids: Sequence[int]) -> float:
        """The second of two equal answers, when a draft model has already read the prompt."""
        probing = engine.using(engine.drafter, "fixed", policy_options={"k": PROBED_LENGTH})
        options: RequestOptions = {"max_new_tokens": PROBED_TOKENS, "ignore_eos": True}
        with timing_lock():
            results = [probing.generate(list(ids), **options) for _ in range(2)]
        stats = results[-1].stats
        return 1e3 * stats.draft_seconds / stats.drafted if stats.drafted else 0.0

    def skip_price(self, engine: Engine, prompts: Sequence[Sequence[int]]) -> Callable[[LayerPlan], float]:
        return WallClock(engine, [list(ids) for ids in prompts])

    def answer(self, engine: Engine, candidate: str, ids: Sequence[int], max_new_tokens: int) -> Sample:
        engine.forget()
        with timing_lock():
            result, seconds = timed_answer(engine, list(ids), {"max_new_tokens": max_new_tokens, "remember": False})
        stats = result.stats
        counts = stats.decoded, seconds, stats.rounds, stats.drafted, stats.accepted
        return Sample(*counts, stats.draft_seconds, stats.verify_seconds)
