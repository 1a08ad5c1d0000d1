"""Bayesian optimisation of skip sets: the least time per verified token, with a Gaussian process over 2L binary variables.

A trial is timed, on the wall clock or by a given cost. If a proxy is given, a set that it predicts to be far worse than
the best one is not timed: its trial is screened, and gets the predicted value, so that the sampler learns from it too.
The starting points come first. Every trial is kept in a study (storage.py).

Source: Zhang et al., Draft & Verify, arXiv 2309.08168, whose search maximises measured tokens a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, final

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

from ...drafters.self_draft import SelfDraft
from ...engine.engine import Engine
from ...engine.request import RequestOptions
from ...engine.timing import timed_answer
from ...errors import UnsupportedOption
from ...models.packed.plan import LayerPlan
from .space import SkipSpace
from .storage import Worker, open_storage, timing_lock

Price = Callable[[LayerPlan], float]

SAMPLERS: Mapping[str, Callable[[int], BaseSampler]] = {
    "gp": lambda seed: GPSampler(seed=seed, deterministic_objective=False),
    "tpe": lambda seed: TPESampler(seed=seed, multivariate=False),
    "random": lambda seed: RandomSampler(seed=seed),
}
FAR_WORSE = 1.3
ABOUT, NAME, SCREENED, PROXY = "about", "name", "screened", "proxy"


@dataclass(frozen=True, slots=True)
class Budget:
    """trials: how many finished ones the study is to have in all, those of other workers and earlier runs too.

    seconds: for how long this run begins new ones. At least one of them is needed.
    """

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.trials, self.seconds) if value is not None]
        if not given or min(given) <= 0:
            raise ValueError(f"a budget needs trials or seconds above 0, got {self.trials} and {self.seconds}")


@dataclass(frozen=True, slots=True)
class Tried:
    """A finished trial; value is its time per verified token. screened says that the proxy predicted it."""

    number: int
    plan: LayerPlan
    value: float
    proxy: float | None = None
    screened: bool = False
    name: str = ""


@final
@dataclass(frozen=True, slots=True)
class WallClock:
    """Seconds per verified token of real decoding over some prompts, alone on this machine (Draft & Verify's objective)."""

    engine: Engine
    prompts: Sequence[Any]
    policy: str = "fixed"
    policy_options: Mapping[str, Any] = field(default_factory=lambda: {"k": 4})
    max_new_tokens: int = 32

    def __call__(self, plan: LayerPlan) -> float:
        engine = self.engine.using(
            lambda target: SelfDraft(target, plan), self.policy, policy_options=self.policy_options
        )
        options: RequestOptions = {"max_new_tokens": self.max_new_tokens, "ignore_eos": True}
        seconds, tokens = 0.0, 0
        with timing_lock():
            for prompt in self.prompts:
                engine.forget()
                result, spent = timed_answer(engine, prompt, options)
                seconds += spent
                tokens += result.stats.decoded
        if not tokens:
            raise ValueError("no answer had a second token to time; take other prompts or more tokens")
        return seconds / tokens


@final
class SkipSearch:
    """A search for the skip set with the least price, in a study that other workers may share.

    about says what is searched: a study of something else is refused with ValueError. Raises UnsupportedOption on an unknown
    sampler.
    """

    def __init__(
        self,
        space: SkipSpace,
        price: Price,
        starts: Mapping[str, LayerPlan],
        *,
        storage: str | Path,
        study: str = "skip sets",
        proxy: Price | None = None,
        sampler: str = "gp",
        seed: int = 0,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if sampler not in SAMPLERS:
            raise UnsupportedOption(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
        self._space = space
        self._price = price
        self._proxy = proxy
        self._starts = {"nothing": LayerPlan(), **starts}
        self._storage = storage
        self._sampler, self._seed = sampler, seed
        self._distributions: dict[str, BaseDistribution] = {name: IntDistribution(0, 1) for name in space.variables}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(storage=open_storage(storage), study_name=study, load_if_exists=True)
        self._check_about({"layers": space.num_layers, **(about or {})})

    @property
    def tried(self) -> list[Tried]:
        """The finished trials of all workers, oldest first."""
        return [self._described(one) for one in self._trials(TrialState.COMPLETE)]

    @property
    def best(self) -> Tried:
        """The set with the least measured price; of equal ones, the smaller. ValueError if none was measured."""
        paid = [one for one in self.tried if not one.screened]
        if not paid:
            raise ValueError(f"no trial has ended yet in {self._storage}; give the search a larger budget")
        return min(paid, key=lambda one: (one.value, len(one.plan.attention) + len(one.plan.mlp)))

    def run(self, budget: Budget, tick: Callable[[Tried], None] = lambda tried: None) -> Tried:
        """Try sets until the budget is spent, and give the best one; tick is called after each trial of this worker."""
        begun = monotonic()
        with Worker(self._study, self._storage) as worker:
            while budget.seconds is None or monotonic() - begun < budget.seconds:
                trial = self._begin(worker, budget)
                if trial is None:
                    break
                tick(self._try(trial))
        return self.best

    def _begin(self, worker: Worker, budget: Budget) -> Trial | None:
        """The next trial; None where those that ended or are under way fill the budget."""
        with worker.turn():
            worker.fail_lost_trials()
            self._enqueue_starts()
            counted = len(self._trials(TrialState.COMPLETE, TrialState.RUNNING))
            if budget.trials is not None and counted >= budget.trials:
                return None
            # a resumed search must not draw again what it drew before
            self._study.sampler = SAMPLERS[self._sampler](self._seed + len(self._study.get_trials(deepcopy=False)))
            return worker.ask(dict(self._distributions))

    def _enqueue_starts(self) -> None:
        """Those without a finished trial, including trials that were lost."""
        states = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.WAITING)
        known = {one.user_attrs.get(NAME) for one in self._trials(*states)}
        for name, plan in self._starts.items():
            if name not in known:
                self._study.enqueue_trial(self._space.point(plan), user_attrs={NAME: name})

    def _try(self, trial: Trial) -> Tried:
        plan = self._space.plan(trial.params)
        try:
            value = self._priced(trial, plan)
        except BaseException:
            self._study.tell(trial, state=TrialState.FAIL)
            raise
        return self._described(self._study.tell(trial, value))

    def _priced(self, trial: Trial, plan: LayerPlan) -> float:
        """The set's price, or the proxy's prediction if that is far worse than the best; the empty set is always timed."""
        if self._proxy is None:
            return self._price(plan)
        guess = self._proxy(plan)
        trial.set_user_attr(PROXY, guess)
        paid = [one for one in self.tried if not one.screened and one.proxy is not None]
        best = min(paid, key=lambda one: one.value, default=None)
        if best is not None and best.proxy and guess > FAR_WORSE * best.proxy and plan != LayerPlan():
            trial.set_user_attr(SCREENED, True)
            return best.value * guess / best.proxy
        return self._price(plan)

    def _described(self, trial: FrozenTrial) -> Tried:
        assert trial.value is not None
        about = trial.user_attrs
        plan = self._space.plan(trial.params)
        return Tried(trial.number, plan, trial.value, about.get(PROXY), bool(about.get(SCREENED)), about.get(NAME, ""))

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states)

    def _check_about(self, about: Mapping[str, Any]) -> None:
        wanted = json.loads(json.dumps(about))
        known = self._study.user_attrs.get(ABOUT)
        if known is None:
            self._study.set_user_attr(ABOUT, wanted)
        elif known != wanted:
            differing = [name for name in {**known, **wanted} if known.get(name) != wanted.get(name)]
            raise ValueError(
                f"{self._storage} holds a search that differs in {', '.join(differing)}; take another storage"
            )
