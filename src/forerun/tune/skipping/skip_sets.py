"""The part of a tuning run that looks for skip sets: the harm of leaving out each sublayer alone, then the search.

Its figures are kept even if no set wins, since they show why skipping does or doesn't pay on this model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, final

from ...core.cost import Cost
from ...engine.engine import Engine
from ...errors import UnsupportedModel
from ...models.packed.plan import FULL, LayerPlan
from ..journal import Journal
from ..machine import Machine
from .match_rate import MatchRate, PlanCost, Proxy, Recorded
from .search import Budget, SkipSearch, Tried
from .space import SkipSpace, Sublayer, starting_points

ANSWERS, PROMPTS = 4, 2
BEST = 2
NO_TIME = "no time was left"


@dataclass(frozen=True, slots=True)
class SkipSets:
    """The results. plans: the best sets by name that leave something out.

    harms: the share of tokens that a sublayer's absence loses, of those that there was time for. tried: the search's
    trials. curve: sets of the least harmful sublayers, ever larger. reason: why nothing was searched, "" if something was.
    """

    plans: Mapping[str, LayerPlan] = field(default_factory=dict)
    harms: Mapping[str, float] = field(default_factory=dict)
    tried: Sequence[Mapping[str, Any]] = ()
    curve: Sequence[Mapping[str, Any]] = ()
    reason: str = ""

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The best trial that leaves something out: of those that were timed, else of those that were not worth it."""
        some = [one for one in self.tried if one["skipped"]]
        return min(some, key=lambda one: (one["screened"], float(one["value"])), default=None)


@final
class SkipSetSearch:
    """Searches an engine's model by recorded answers. trials: no more than that, else as many as the time allows."""

    def __init__(
        self,
        engine: Engine,
        answers: Sequence[Recorded],
        target: Cost,
        machine: Machine,
        journal: Journal,
        storage: str | Path,
        about: Mapping[str, Any],
        trials: int | None = None,
    ) -> None:
        self._engine = engine
        self._answers = answers[:ANSWERS]
        self._target = target
        self._machine = machine
        self._journal = journal
        self._storage = storage
        self._about = about
        self._trials = trials
        self._space = SkipSpace(engine.runner.num_layers)
        self._rate = MatchRate(engine.runner, self._answers)

    def run(self, until: float, tick: Callable[[str], None]) -> SkipSets:
        """Until the budget's second `until`; half of the time that is left may go into measuring harms."""
        try:
            self._engine.runner.check_plan(LayerPlan.skip(self._space.num_layers, (0,)))
        except UnsupportedModel as error:
            return SkipSets(reason=str(error))
        cost = self._plan_cost()
        halfway = (self._journal.spent + until) / 2
        self._answers = self._answers[: self._affordable(halfway)]
        self._rate = MatchRate(self._engine.runner, self._answers)
        harms = self._harms(halfway, tick)
        curve = self._curve(harms, cost) if harms else []
        tried = self._search(cost, harms, until, tick)
        timed = sorted(
            (one for one in tried if not one["screened"] and one["skipped"]),
            key=lambda one: (one["value"], one["skipped"], one["name"]),
        )
        return SkipSets(
            {one["name"]: _plan(one) for one in timed[:BEST]},
            {f"{kind} {layer}": value for (kind, layer), value in harms.items()},
            tried,
            curve,
            "" if tried else NO_TIME,
        )

    def _plan_cost(self) -> PlanCost:
        ids = self._answers[0].ids
        found = self._journal.kept(
            "plan cost", "sublayers", lambda: _shares(self._machine.plan_cost(self._engine, ids))
        )
        return PlanCost(found["attention"], found["mlp"])

    def _affordable(self, until: float) -> int:
        """On how many answers the harm of every sublayer can be measured until then; at least one."""

        def count() -> Mapping[str, Any]:
            self._rate(FULL)
            begun = self._journal.spent
            self._rate(self._space.without(self._space.sublayers[:1]))
            each = (self._journal.spent - begun) / len(self._answers)
            wanted = each * len(self._space.sublayers)
            room = max(until - self._journal.spent, 0.0)
            return {"count": len(self._answers) if wanted == 0 else min(max(int(room / wanted), 1), len(self._answers))}

        return int(self._journal.kept("sets", "answers", count)["count"])

    def _kept_rate(self, plan: LayerPlan) -> float:
        found = self._journal.kept("match rate", _described(plan), lambda: {"rate": self._rate(plan)})
        return float(found["rate"])

    def _harms(self, until: float, tick: Callable[[str], None]) -> dict[Sublayer, float]:
        """Of as many sublayers as the time allows; every third first, so that no part of the model is left out."""
        whole = self._kept_rate(FULL)
        all_of_them = self._space.sublayers
        found: dict[Sublayer, float] = {}
        for one in chain.from_iterable(all_of_them[first::3] for first in range(3)):
            plan = self._space.without([one])
            if self._journal.known("match rate", _described(plan)) is None and self._journal.spent >= until:
                continue
            found[one] = whole - self._kept_rate(plan)
            tick("harm of single sublayers")
        return found

    def _curve(self, harms: Mapping[Sublayer, float], cost: PlanCost) -> list[dict[str, Any]]:
        """Growing sets of the least harmful sublayers, and the predicted speed-up of each."""
        ordered = sorted(harms, key=lambda one: harms[one])
        sizes = sorted({round(len(ordered) * share / 12) for share in range(9)})
        proxy = Proxy(self._kept_rate, cost, self._target)
        found: list[dict[str, Any]] = []
        for size in sizes:
            plan = self._space.without(ordered[:size])
            speedup = 1 / proxy(plan)
            found.append({"skipped": size, "match_rate": self._kept_rate(plan), "cost": cost(plan), "speedup": speedup})
        return found

    def _search(
        self, cost: PlanCost, harms: Mapping[Sublayer, float], until: float, tick: Callable[[str], None]
    ) -> list[Mapping[str, Any]]:
        """The finished trials; [] where no time was left to begin. A search that ended is not begun again."""

        def search() -> Mapping[str, Any]:
            seconds = max(until - self._journal.spent, 1.0)
            prompts = [one.ids[: one.start] for one in self._answers[:PROMPTS]]
            study = SkipSearch(
                self._space,
                self._machine.skip_price(self._engine, prompts),
                starting_points(self._space, harms),
                storage=self._storage,
                proxy=Proxy(self._kept_rate, cost, self._target),
                about=self._about,
            )
            study.run(Budget(self._trials, None if self._trials else seconds), lambda tried: tick("skip sets"))
            return {"tried": [self._trial(one, cost) for one in study.tried]}

        found = self._journal.within(until, "search", "skip sets", search)
        return [] if found is None else list(found["tried"])

    def _trial(self, tried: Tried, cost: PlanCost) -> dict[str, Any]:
        plan = tried.plan
        return {
            "name": tried.name or f"set {tried.number}",
            "skipped": len(plan.attention) + len(plan.mlp),
            "attention": sorted(plan.attention),
            "mlp": sorted(plan.mlp),
            "layers": self._space.num_layers,
            "value": tried.value,
            "proxy": tried.proxy,
            "screened": tried.screened,
            "match_rate": self._kept_rate(plan),
            "cost": cost(plan),
        }


def _shares(cost: PlanCost) -> dict[str, float]:
    return {"attention": cost.attention, "mlp": cost.mlp}


def _plan(trial: Mapping[str, Any]) -> LayerPlan:
    return LayerPlan.skip(trial["layers"], trial["attention"], trial["mlp"])


def _described(plan: LayerPlan) -> str:
    return f"attention {sorted(plan.attention)} mlp {sorted(plan.mlp)}"
