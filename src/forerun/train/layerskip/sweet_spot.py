"""Where an early exit pays most: acceptance and speed-up over plain decoding by exit layer and draft length.

For every prompt and exit layer, plain decoding and all draft lengths run one after the other in shuffled order, so that a
noisy moment hits all alike. A speed-up is the median over the prompts of tokens a second over those of the plain run beside
it. The predicted one is what the same acceptance gives if only forwards, as timed here, took time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ...engine.answer import Result
from ...engine.engine import Engine
from ...engine.request import RequestOptions
from ...engine.stats import Stats
from ...engine.timing import timed_answer
from ..data.examples import Example


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """What drafting `length` tokens after `exit_layer` gave.

    draft_cost is c, a drafted token's forward over a plain one. Of `prompts` texts, `equal` were the plain ones; in other
    formats than float32 a near-tie may fall otherwise when more rows are computed together.
    """

    exit_layer: int
    length: int
    speedup: float
    predicted_speedup: float
    tokens_per_second: float
    draft_cost: float
    acceptance: float
    acceptance_per_position: tuple[float, ...]
    tokens_per_round: float
    equal: int
    prompts: int


@dataclass(slots=True)
class _Runs:
    """One way of decoding: its statistics, its tokens a second by prompt, and how those compare with the plain ones."""

    stats: Stats = field(default_factory=Stats)
    speeds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    equal: int = 0

    def take(self, result: Result, seconds: float) -> None:
        self.stats.merge(result.stats)
        self.speeds.append(result.stats.decoded / seconds)


def default_exits(num_layers: int) -> tuple[int, ...]:
    """An eighth, a quarter, a third and a half of the layers, as far as these are different exits."""
    return tuple(sorted({max(1, round(num_layers * share)) for share in (1 / 8, 1 / 4, 1 / 3, 1 / 2)}))


def prompt_of(example: Example) -> tuple[int, ...]:
    """What is learnt is to be answered; of a plain text, its second half."""
    return example.ids[: example.start if example.start > 1 else max(1, len(example.ids) // 2)]


def measure_exits(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    exits: Sequence[int],
    lengths: Sequence[int],
    *,
    max_new_tokens: int,
    drafter_options: Mapping[str, Any] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> list[SweepPoint]:
    """Every exit layer with every draft length, greedily; tick is called once a prompt and exit layer.

    drafter_options are further ones of drafter "self", such as vocabulary. Raises ValueError where no answer is longer than
    its first token.
    """
    methods = {
        (exit_layer, length): engine.using(
            "self",
            "fixed",
            drafter_options={**(drafter_options or {}), "exit_layer": exit_layer},
            policy_options={"k": length},
        )
        for exit_layer in exits
        for length in lengths
    }
    runs = {key: _Runs() for key in methods}
    plain = {exit_layer: _Runs() for exit_layer in exits}
    options: RequestOptions = {"max_new_tokens": max_new_tokens}
    _warm(engine, methods, prompts[0])
    shuffle = random.Random(0).shuffle
    for prompt in prompts:
        for exit_layer in exits:
            ways: list[int | None] = [None, *lengths]
            shuffle(ways)
            told = {
                way: timed_answer(engine if way is None else methods[exit_layer, way], list(prompt), options)
                for way in ways
            }
            tick()
            own, seconds = told.pop(None)
            if own.stats.decoded:
                plain[exit_layer].take(own, seconds)
                for way, (result, spent) in told.items():
                    if way is not None:
                        _compare(runs[exit_layer, way], result, spent, own, plain[exit_layer].speeds[-1])
    if not all(way.ratios for way in runs.values()):
        raise ValueError("no answer had a second token, so there is no speed to measure; take other prompts")
    return [_sweep_point(key, way, plain[key[0]].stats) for key, way in runs.items()]


def _warm(engine: Engine, methods: Mapping[Any, Engine], prompt: Sequence[int]) -> None:
    """What is made on first use is not timed."""
    for way in (engine, *methods.values()):
        way.generate(list(prompt), max_new_tokens=4)


def _compare(runs: _Runs, result: Result, seconds: float, own: Result, speed: float) -> None:
    runs.equal += result.ids == own.ids
    if result.stats.decoded:
        runs.take(result, seconds)
        runs.ratios.append(runs.speeds[-1] / speed)


def _sweep_point(key: tuple[int, int], runs: _Runs, plain: Stats) -> SweepPoint:
    stats, (exit_layer, length) = runs.stats, key
    forward = plain.forward_seconds / plain.rounds
    draft = stats.draft_forward_seconds / stats.drafted if stats.drafted else 0.0
    round_seconds = (stats.draft_forward_seconds + stats.forward_seconds) / stats.rounds
    return SweepPoint(
        exit_layer=exit_layer,
        length=length,
        speedup=median(runs.ratios),
        predicted_speedup=stats.tokens_per_round * forward / round_seconds,
        tokens_per_second=median(runs.speeds),
        draft_cost=draft / forward,
        acceptance=stats.acceptance,
        acceptance_per_position=stats.acceptance_per_position,
        tokens_per_round=stats.tokens_per_round,
        equal=runs.equal,
        prompts=len(runs.ratios),
    )
