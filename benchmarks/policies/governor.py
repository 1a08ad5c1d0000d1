"""What the governor saves with a drafter whose tokens are nearly all wrong: runs with and without it, in turn.

Run: python benchmarks/policies/governor.py OUT.json PROMPTS ADAPTER [--per-category N] [--repeats N] [--share 0.05]

The drafter is the exit adapter, at its own cost, whose tokens are replaced: a seeded coin by position says which is the
model's own next one, as it answered without drafts, and all others are made wrong. Greedy on smollm2 in bfloat16. All
methods answer each prompt one after the other, each time in another order; a speed-up is tokens a second over plain
decoding's in the same repeat.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, final

from forerun import Engine, load
from forerun.bench.comparison import spread
from forerun.core.drafter import Drafter
from forerun.core.values import Context, Step
from forerun.engine.measurement_conditions import conditions
from forerun.engine.methods import policy_factory
from forerun.engine.stats import Stats
from forerun.engine.timing import timed_answer
from forerun.models.packed.sequence import Sequence
from forerun.traces.record import read_prompts

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "fixed k=3": ("fixed", {"k": 3}),
    "governor fixed k=3": ("governor", {"inner": "fixed", "k": 3}),
    "cost": ("cost", {}),
    "governor cost": ("governor", {"inner": "cost"}),
}
PLAIN = "plain"


@dataclass(slots=True)
class Answers:
    """The model's own answers, which tell what a wrong token is. now: of the running prompt."""

    prompt: tuple[int, ...] = ()
    now: tuple[int, ...] = ()


@final
class Spoilt(Drafter):
    """Another drafter's steps, at its cost, with right tokens at a share of the places and wrong ones elsewhere."""

    def __init__(self, inner: Drafter, answers: Answers, share: float, vocabulary: int) -> None:
        self._inner, self._answers, self._share, self._vocabulary = inner, answers, share, vocabulary
        self.identity = f"spoilt {inner.identity}"
        self.taps = inner.taps

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        known, place = len(context.ids), 0
        async with aclosing(self._inner.draft(context)) as steps:  # type: ignore[type-var]
            async for step in steps:
                yield replace(step, tokens=(self._token(known + place),))
                place += 1

    def close(self) -> None:
        self._inner.close()

    def _token(self, position: int) -> int:
        index = position - len(self._answers.prompt)
        right = self._answers.now[index] if index < len(self._answers.now) else 0
        coin = random.Random(f"{self._answers.prompt[:8]} {position}").random()
        return right if coin < self._share else (right + 1) % self._vocabulary


@dataclass(slots=True)
class Run:
    stats: Stats = field(default_factory=Stats)
    seconds: float = 0.0
    equal: int = 0


def repeat(
    engines: dict[str, Engine], truth: dict[tuple[int, ...], tuple[int, ...]], answers: Answers, turn: int, new: int
) -> dict[str, Run]:
    runs = {name: Run() for name in engines}
    names = list(engines)
    for number, (prompt, own) in enumerate(truth.items()):
        answers.prompt, answers.now = prompt, own
        shift = (turn + number) % len(names)
        for name in names[shift:] + names[:shift]:
            engines[name].forget()
            result, seconds = timed_answer(
                engines[name], list(prompt), {"max_new_tokens": new, "speculate": name != PLAIN}
            )
            runs[name].stats.merge(result.stats)
            runs[name].seconds += seconds
            runs[name].equal += tuple(result.ids) == own
    return runs


def told(name: str, repeats: list[dict[str, Run]]) -> dict[str, Any]:
    own = [runs[name] for runs in repeats]
    rates = [one.stats.decoded / one.seconds for one in own]
    speedups = [
        rate * runs[PLAIN].seconds / runs[PLAIN].stats.decoded for rate, runs in zip(rates, repeats, strict=True)
    ]
    stats = own[-1].stats
    return {
        "method": name,
        "tokens_per_second": median(rates),
        "speedup": median(speedups),
        "speedup_quartiles": spread(speedups),
        "speedups": speedups,
        "acceptance": stats.acceptance,
        "tokens_per_round": stats.tokens_per_round,
        "held_back_rounds": stats.held_back / stats.rounds if stats.rounds else 0.0,
        "switches": stats.switches,
        "equal": sum(one.equal for one in own),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("adapter")
    parser.add_argument("--per-category", type=int)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    given = parser.parse_args()
    options = {"adapter": given.adapter, "vocabulary": 8192}
    engine = load("smollm2", dtype="bfloat16", drafter="exit_adapter", drafter_options=options)
    asked = read_prompts(engine, given.prompts, per_category=given.per_category, skip=0, max_prompt=300, raw=False)
    new = given.max_new_tokens
    truth = {
        tuple(one.ids): tuple(engine.generate(list(one.ids), max_new_tokens=new, speculate=False).ids)
        for one in asked[: given.limit]
    }
    answers = Answers()

    def spoilt(sequence: Sequence) -> Drafter:
        return Spoilt(engine.drafter(sequence), answers, given.share, 8192)

    repeats = []
    for turn in range(given.repeats):
        engines = {name: engine.using(spoilt, policy_factory(*method)) for name, method in METHODS.items()}
        engines[PLAIN] = engine
        repeats.append(repeat(engines, truth, answers, turn, new))
        print(f"repeat {turn + 1} of {given.repeats}", file=sys.stderr)
    found = [told(name, repeats) for name in [PLAIN, *METHODS]]
    for one in found:
        print(f"{one['method']:20} {one['speedup']:.3f} x plain, acceptance {one['acceptance'] or 0:.3f}")
    report = {
        **conditions(engine, shlex.join(["python", *sys.argv])),
        "prompts": len(truth),
        "repeats": given.repeats,
        "methods": found,
    }
    given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
