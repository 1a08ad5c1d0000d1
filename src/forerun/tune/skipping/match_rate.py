"""How often a partial model predicts the whole model's token on recorded greedy answers, and the expected time per token.

The answers are read teacher-forced: each row sees the whole model's keys of all tokens before it, as the first token of a
draft does. So one reading of an answer stands for a draft at each of its tokens, and a skip set is evaluated with one or two
forwards per answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, final

from ...core.cost import Cost, predicted_speedup
from ...core.drive import Batch, drive
from ...drafters.self_draft import SelfDraft
from ...engine.engine import Engine
from ...engine.prompts.forms import encode
from ...engine.request import RequestOptions
from ...models.packed.plan import FULL, LayerPlan
from ...models.packed.runner import Runner
from ...models.packed.sequence import Sequence as Target
from .space import SkipSpace, Sublayer

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A text whose tokens from `start` on are the target's greedy answer."""

    ids: tuple[int, ...]
    start: int


def record(engine: Engine, prompts: Iterable[Any], max_new_tokens: int) -> list[Recorded]:
    """The engine's greedy answers to the prompts. Raises ValueError where none has a token."""
    options: RequestOptions = {"max_new_tokens": max_new_tokens, "ignore_eos": True}
    texts = [encode(prompt, engine.tokenizer) for prompt in prompts]
    results = engine.generate(texts, **options) if texts else []
    answers = [
        Recorded((*ids, *result.ids), len(ids)) for ids, result in zip(texts, results, strict=True) if result.ids
    ]
    if not answers:
        raise ValueError("no prompt has an answer to measure match rates by; take other prompts or more tokens")
    return answers


@final
class MatchRate:
    """Match rates over some answers. It keeps the prompts' keys, so many plans can be asked for; values are kept too."""

    def __init__(self, runner: Runner, answers: Sequence[Recorded]) -> None:
        self._runner = runner
        self._texts = [(Target(runner), answer) for answer in answers]
        self._known: dict[LayerPlan, float] = {}

    def __call__(self, plan: LayerPlan) -> float:
        """The share of the answers' tokens that the plan's argmax gives, in [0, 1]."""
        if plan not in self._known:
            self._runner.check_plan(plan)
            self._known[plan] = self._measure(plan)
        return self._known[plan]

    def _measure(self, plan: LayerPlan) -> float:
        batch: Batch[int, list[bool]] = Batch()
        for index, (target, answer) in enumerate(self._texts):
            batch.add(index, _matches(target, answer, plan))
        right: list[bool] = []
        try:
            for _, value in batch.values():
                right += value
        finally:
            batch.close()
        return sum(right) / len(right)


async def _matches(target: Target, answer: Recorded, plan: LayerPlan) -> AsyncGenerator[list[bool]]:
    ids = answer.ids
    rows = await SelfDraft(target, plan).read(ids[:-1], answer.start)
    said = rows.logits.argmax(-1).tolist()
    yield [one == other for one, other in zip(said, ids[answer.start :], strict=True)]


def harms(rate: Callable[[LayerPlan], float], space: SkipSpace) -> dict[Sublayer, float]:
    """The harm of leaving out each sublayer alone: the share of tokens that are no longer matched."""
    whole = rate(FULL)
    return {one: whole - rate(space.without([one])) for one in space.sublayers}


@dataclass(frozen=True, slots=True)
class PlanCost:
    """A forward of one row under a skip set, as a share of the whole model's.

    attention and mlp are the shares of one sublayer each.
    """

    attention: float
    mlp: float

    def __call__(self, plan: LayerPlan) -> float:
        """Never below 0.01: an output head and norms are left."""
        return max(1 - self.attention * len(plan.attention) - self.mlp * len(plan.mlp), 0.01)


def measure_plan_cost(runner: Runner, ids: Sequence[int], repeats: int = 7) -> PlanCost:
    """Time one row after a text whole, without attention and without MLPs, in turns; medians of `repeats` turns each."""
    every = frozenset(range(runner.num_layers))
    plans = {"whole": FULL, "attention": LayerPlan(attention=every), "mlp": LayerPlan(mlp=every)}
    times: dict[str, list[float]] = {name: [] for name in plans}

    async def turns() -> AsyncGenerator[None]:
        target = Target(runner)
        await target.sync(ids)
        for _ in range(repeats + 1):
            for name, plan in plans.items():
                target.drop()
                begun = perf_counter()
                rows = await target.forward(ids[-1:], plan=plan)
                float(rows.logits[0, 0])
                times[name].append(perf_counter() - begun)
        yield

    list(drive(turns()))
    whole, *carved = (median(values[1:]) for values in times.values())
    return PlanCost(*(max(1 - one / whole, 0.0) / runner.num_layers for one in carved))


def time_per_token(
    rate: float, cost: float, target: Cost, prefix: float | None = None, lengths: Sequence[int] = LENGTHS
) -> float:
    """Expected time per verified token over plain decoding's, at the best draft length: below 1 is faster.

    rate is taken as the chance that a drafted token is accepted, given that those before it were; cost is that of a draft
    step over a one-row forward of the target, whose verifications cost what `target` says.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"a match rate must be in [0, 1], got {rate}")
    return min(1 / predicted_speedup(target, sum(rate**i for i in range(k + 1)), k, cost, prefix) for k in lengths)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A cheap substitute for a timed trial: a skip set's time per verified token by its match rate and its cost."""

    rate: Callable[[LayerPlan], float]
    cost: Callable[[LayerPlan], float]
    target: Cost
    prefix: float | None = None

    def __call__(self, plan: LayerPlan) -> float:
        return time_per_token(self.rate(plan), self.cost(plan), self.target, self.prefix)
