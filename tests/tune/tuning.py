"""A machine whose times follow from what was decoded, so that a tuning run gives the same twice; and a run on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import forerun
from forerun.core.cost import Cost, Point
from forerun.models.packed.plan import LayerPlan
from forerun.testing import tiny_model
from forerun.tune.candidates import Chosen
from forerun.tune.journal import Journal
from forerun.tune.machine import Machine, Sample
from forerun.tune.run import Outcome, Tuning
from forerun.tune.setup import Setup, about_run
from forerun.tune.skipping.match_rate import PlanCost

STEP = 10.0
PROMPTS = [[5 + n, 6, 7, 5 + n, 6, 7, 5 + n, 6] for n in range(9)]


class Clock:
    """Shows what it is set to."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


class Killed(BaseException):
    """What a kill looks like from inside."""


class Scripted(Machine):
    """A plain step takes 10 ms, each further row a tenth of that unless told, a drafted token what `steps` say of its way.

    Every measurement takes a second of its own clock. dies_at: at which measurement the run is killed.
    """

    def __init__(
        self,
        steps: Mapping[str, float] | None = None,
        row: float = 1.0,
        dies_at: int | None = None,
        beside: float = 0.0,
    ) -> None:
        self.seconds = 0.0
        self.measured: list[str] = []
        self._steps = steps or {}
        self._row = row
        self._dies_at = dies_at
        self._beside = beside

    def now(self) -> float:
        return self.seconds

    def verify_cost(self, engine: forerun.Engine, prefix: int) -> Cost:
        self._measure("verify")
        points = tuple(Point(rows, prefix, STEP + self._row * (rows - 1)) for rows in (1, 2, 13))
        return Cost("tiny", "HFRunner", "float32", "full", points)

    def plan_cost(self, engine: forerun.Engine, ids: Sequence[int]) -> PlanCost:
        self._measure("plan")
        return PlanCost(0.1, 0.1)

    def step_ms(self, engine: forerun.Engine, drafter: str, ids: Sequence[int]) -> float:
        self._measure(f"step {drafter}")
        return self._step(drafter)

    def skip_price(self, engine: forerun.Engine, prompts: Sequence[Sequence[int]]) -> Callable[[LayerPlan], float]:
        def price(plan: LayerPlan) -> float:
            self._measure("set")
            return 2.0 - 0.1 * len(plan.attention) + 0.1 * len(plan.mlp)

        return price

    def answer(self, engine: forerun.Engine, candidate: str, ids: Sequence[int], max_new_tokens: int) -> Sample:
        self._measure(f"answer {candidate}")
        engine.forget()
        stats = engine.generate(list(ids), max_new_tokens=max_new_tokens).stats
        verify = (stats.rounds * (STEP + self._beside) + stats.drafted * self._row) / 1e3
        draft = stats.drafted * self._step(candidate) / 1e3
        return Sample(stats.decoded, verify + draft, stats.rounds, stats.drafted, stats.accepted, draft, verify)

    def _step(self, name: str) -> float:
        return next((ms for start, ms in self._steps.items() if name.startswith(start)), 0.0)

    def _measure(self, what: str) -> None:
        if len(self.measured) == self._dies_at:
            raise Killed
        self.measured.append(what)
        self.seconds += 1.0


def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


def setup(folder: Path, **changes: Any) -> Setup:
    values: dict[str, Any] = {
        "chosen": Chosen(("lookup", "exit")),
        "budget": 100.0,
        "storage": folder / "sets.journal",
        "max_new_tokens": 12,
        "set_trials": 4,
    }
    return Setup(**{**values, **changes})


def tuned(
    on: forerun.Engine,
    folder: Path,
    machine: Scripted,
    prompts: Sequence[Sequence[int]] = PROMPTS,
    told: Callable[[str], None] = lambda what: None,
    **changes: Any,
) -> Outcome:
    """A run whose log and study lie in the folder."""
    given = setup(folder, **changes)
    with Journal(folder / "log.jsonl", about_run(given, on, prompts), machine.now) as journal:
        return Tuning(on, given, machine, journal, told).run(prompts)
