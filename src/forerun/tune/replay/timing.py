"""Times rules on the wall clock, to compare with the simulated results.

For every prompt, plain decoding and all rules run one after the other in shuffled order, so that noise affects all alike. In
each repeat a rule starts without learnt state, as in a replay.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from ...bench.comparison import spread
from ...engine.engine import Engine
from ...engine.request import RequestOptions
from ...engine.stats import Stats
from ...engine.timing import timed_answer
from ...traces.read import Trace
from .report import Variant
from .round_costs import RoundCosts
from .simulate import Replay

PLAIN = -1
WARM_UP = 4


@dataclass(frozen=True, slots=True)
class Timed:
    """speedup: the median of the repeats', with its quartiles; difference: simulated over measured, less 1.

    Of `answers` runs, `equal` gave the traced tokens; in other formats than float32 a near-tie may fall otherwise.
    """

    label: str
    speedup: float
    speedup_quartiles: tuple[float, float]
    simulated: float
    difference: float
    tokens_per_second: float
    plain_tokens_per_second: float
    tokens_per_round: float
    simulated_tokens_per_round: float
    equal: int
    answers: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class _Run:
    """One way of decoding in one repeat."""

    stats: Stats
    seconds: float = 0.0
    equal: int = 0

    @property
    def rate(self) -> float:
        return self.stats.decoded / self.seconds


def time_rules(
    engine: Engine,
    trace: Trace,
    variants: Sequence[Variant],
    costs: RoundCosts,
    *,
    prompts: int,
    repeats: int,
    tick: Callable[[], None] = lambda: None,
) -> list[Timed]:
    """The variants on the first so many prompts of the trace, with the engine's drafter; tick: once a prompt and repeat.

    Raises ValueError where the trace was made with another model or drafter, or where nothing can be timed.
    """
    trace.check(engine.pair)
    if prompts < 1 or repeats < 1:
        raise ValueError(f"prompts and repeats must be at least 1, got {prompts} and {repeats}")
    answers = [answer for answer in trace.answers if len(answer.tokens) > 1][:prompts]
    if not answers:
        raise ValueError(f"no answer of {trace.path} has a second token, so there is no speed to measure")
    part = replace(trace, answers=tuple(answers))
    engine.generate(list(answers[0].prompt), max_new_tokens=WARM_UP)
    repeated = [_repeat(engine, part, variants, random.Random(repeat), tick) for repeat in range(repeats)]
    replay = Replay(part, costs)
    return [_timed(number, variant, repeated, replay) for number, variant in enumerate(variants)]


def _repeat(
    engine: Engine, trace: Trace, variants: Sequence[Variant], chance: random.Random, tick: Callable[[], None]
) -> dict[int, _Run]:
    """Every prompt once, in the trace's order: a run for each variant by its number, and the plain one."""
    engines = {number: engine.using(engine.drafter, variant.build()) for number, variant in enumerate(variants)}
    engines[PLAIN] = engine
    runs = {config: _Run(Stats()) for config in engines}
    for answer in trace.answers:
        for config in chance.sample(list(engines), len(engines)):
            engine.forget()
            options: RequestOptions = {"max_new_tokens": trace.header.max_new_tokens, "speculate": config != PLAIN}
            result, seconds = timed_answer(engines[config], list(answer.prompt), options)
            runs[config].stats.merge(result.stats)
            runs[config].seconds += seconds
            runs[config].equal += result.ids == answer.tokens
        tick()
    return runs


def _timed(number: int, variant: Variant, repeated: Sequence[dict[int, _Run]], replay: Replay) -> Timed:
    own = [runs[number] for runs in repeated]
    ratios = [runs[number].rate / runs[PLAIN].rate for runs in repeated]
    simulated = replay.policy(variant.build())
    return Timed(
        label=variant.label,
        speedup=median(ratios),
        speedup_quartiles=spread(ratios),
        simulated=simulated.speedup,
        difference=simulated.speedup / median(ratios) - 1,
        tokens_per_second=median(run.rate for run in own),
        plain_tokens_per_second=median(runs[PLAIN].rate for runs in repeated),
        tokens_per_round=own[0].stats.tokens_per_round,
        simulated_tokens_per_round=simulated.stats.tokens_per_round,
        equal=sum(run.equal for run in own),
        answers=len(repeated) * len(replay.trace.answers),
    )
