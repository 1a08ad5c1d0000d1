"""Is the throughput that forerun design predicts for a shape the one that the real loop has?

Run: python benchmarks/design/validate.py OUT.json smollm2 --weights int4 [--alpha 0.7] [--repeats 3]

Each shape gets a model with random weights, whose forwards the real loop runs, and whose tokens are replaced: by the
target's own next token with probability alpha, else by a wrong one. Every answer is timed beside a plain one, in turn, from
the end of its first round on (that one reads the prompt, which no steady rate holds). The text must stay the plain one's.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import mean, median
from typing import Any

from rich.console import Console
from rich.table import Table

from forerun import Engine, load
from forerun.bench.difference import rounding_margin, shared_length
from forerun.core.drafter import Drafter
from forerun.core.policy import LengthPolicy
from forerun.core.values import Context, Round, Step
from forerun.design.run import Setup, design
from forerun.design.throughput import DraftTimes, Loop, Rounds, predict, round_ms, rounds_of
from forerun.design.untrained import config_of, untrained
from forerun.drafters.base import DrafterFactory, Parts
from forerun.drafters.chain import next_step
from forerun.drafters.draft_model import build
from forerun.engine.measurement_conditions import conditions
from forerun.engine.prompts.forms import encode
from forerun.models.files.draft_shape import DraftShape
from forerun.models.packed.pool import SequencePool

SHAPES = (
    "layers=1,vocabulary=8192",
    "layers=2,vocabulary=8192",
    "layers=4,vocabulary=8192",
    "layers=8,vocabulary=8192",
    "layers=4",
    "layers=8,width=288,mlp=768,heads=6,vocabulary=8192",
)
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
PROMPTS = (
    "Why is the sky blue? Explain it to a child.",
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "List five things to pack for a week in the mountains, and say why each is needed.",
)


class Oracle:
    """What the target would write after a text, plainly. It remembers, so that asking again takes no time.

    In 16 bits a checked row rounds otherwise than a plain step, so a text may leave the plain one at a near-tie.
    """

    def __init__(self, engine: Engine, prompt: Sequence[int], new: int) -> None:
        self._engine, self._length = engine, len(prompt) + new
        self._texts: list[list[int]] = []
        self.answer = self.continuation(prompt)

    def continuation(self, ids: Sequence[int]) -> list[int]:
        for text in self._texts:
            if text[: len(ids)] == list(ids):
                return text[len(ids) :]
        options = {"max_new_tokens": self._length - len(ids), "ignore_eos": True, "speculate": False}
        self._texts.append([*ids, *self._engine.generate(list(ids), **options).ids])
        return self._texts[-1][len(ids) :]


def preferred(engine: Engine, prompt: list[int], answer: list[int], ids: list[int]) -> float:
    """The log-probability that plain decoding gave its own token more where another text parts from it, 0 if none does."""
    at = shared_length(tuple(answer), tuple(ids))
    if at == len(answer):
        return 0.0
    told = engine.generate(
        prompt, max_new_tokens=at + 1, ignore_eos=True, speculate=False, logprobs=16, processed_logprobs=True
    )
    top = dict(told.logprobs[at].top)
    return top[answer[at]] - top.get(ids[at], min(top.values()))


class Injected(Drafter):
    """Another drafter's forwards with tokens of our own choice."""

    def __init__(self, inner: Drafter, oracle: Oracle, alpha: float, seed: int) -> None:
        self._inner, self._oracle, self._alpha = inner, oracle, alpha
        self._rng = random.Random(seed)

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        drafted: list[int] = []
        left = self._oracle.continuation(context.ids)
        rows = await self._inner.begin(context)
        while rows is not None and len(drafted) < len(left):
            step = next_step(rows, context, drafted)
            right = left[len(drafted)]
            token = right if self._rng.random() < self._alpha else (right + 1) % rows.logits.shape[-1]
            yield replace(step, tokens=(token,))
            drafted.append(token)
            rows = await self._inner.extend([token], [len(drafted) - 2])

    def close(self) -> None:
        self._inner.close()


class Timed(LengthPolicy):
    """k steps a round; the tokens and the seconds after the first round."""

    def __init__(self, k: int, clock: Callable[[], float]) -> None:
        self._k, self._clock = k, clock
        self._begun: float | None = None
        self.seconds = 0.0
        self.emitted: list[int] = []
        self.parts: Counter[str] = Counter()

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) >= self._k

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._k - len(steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        now = self._clock()
        if self._begun is None:
            self._begun = now
        elif len(round.draft) == self._k:  # the last round may have no room for a whole draft
            self.emitted.append(len(round.tokens))
            self.parts.update({name: 1000 * spent for name, spent in asdict(round.timing).items() if name != "pack"})
            self.seconds = now - self._begun


def drafting(engine: Engine, config: Any, shape: DraftShape, weights: str) -> DrafterFactory:
    """The drafter draft_model on a model of this shape."""
    runner = untrained(config, replace(shape, vocabulary=DraftShape.of(config).vocabulary), engine, weights)
    parts = Parts(
        SequencePool(engine.runner), engine.identity, None, lambda model: (SequencePool(runner, drafting=True), None)
    )
    whole = shape.vocabulary == config.vocab_size
    return build(parts, model="untrained", vocabulary=0 if whole else shape.vocabulary)


def measured(
    engine: Engine,
    factory: DrafterFactory,
    given: argparse.Namespace,
    oracles: Sequence[tuple[list[int], Oracle]],
    turn: int,
) -> dict[str, Any]:
    """Tokens a second of drafting and of plain answers, in turn; turn: which coins are thrown."""
    plain, own, emitted, parts = [], [], Counter[int](), Counter[str]()
    k, clock = given.k, CLOCKS[given.clock]
    identical, margin = 0, 0.0
    for number, (prompt, oracle) in enumerate(oracles):
        options = {"max_new_tokens": given.new, "ignore_eos": True}
        clocks = Timed(0, clock), Timed(k, clock)
        injected = engine.using(
            lambda target, o=oracle, s=1000 * turn + number: Injected(factory(target), o, given.alpha, s),
            lambda one=clocks[1]: one,
        )
        engine.using("none", lambda one=clocks[0]: one).generate(prompt, **options)
        ids = list(injected.generate(prompt, **options).ids)
        identical += ids == oracle.answer
        margin = max(margin, preferred(engine, prompt, oracle.answer, ids))
        for one, rates in zip(clocks, (plain, own), strict=True):
            rates.append((sum(one.emitted), one.seconds))
        emitted.update(clocks[1].emitted)
        parts.update(clocks[1].parts)
    rates = [sum(tokens for tokens, _ in runs) / sum(seconds for _, seconds in runs) for runs in (plain, own)]
    ratios = [(b / t) / (a / s) for (a, s), (b, t) in zip(plain, own, strict=True)]
    total = sum(emitted.values())
    shares = tuple(emitted[n] / total for n in range(1, k + 2))
    spent = {name: ms / total for name, ms in parts.items()}
    spent["round"] = 1000 * sum(seconds for _, seconds in own) / total
    return {
        "spent": spent,
        "plain": rates[0],
        "own": rates[1],
        "speedup": median(ratios),
        "identical": identical,
        "answers": len(own),
        "margin": margin,
        "shares": shares,
    }


def predicted_parts(loop: Loop, times: DraftTimes, rounds: Rounds) -> dict[str, float]:
    """A round's milliseconds, named as core.Timing names the measured ones."""
    read = sum(share * times.first.ms(n) for n, share in enumerate(rounds.shares, start=1))
    return {
        "draft": read + (rounds.k - 1) * times.later,
        "forward": loop.verify.ms(rounds.k + 1),
        "round": round_ms(loop, times, rounds),
    }


def tell_time_by(clock: Callable[[], float]) -> None:
    """The processor's time leaves out what other programs took of it: for a busy machine, and one thread."""
    for name in ("core.decode", "engine.timing", "models.packed.sequence", "design.round_timing"):
        vars(import_module(f"forerun.{name}"))["perf_counter"] = clock


def compared(
    engine: Engine,
    setup: Setup,
    factory: DrafterFactory,
    given: argparse.Namespace,
    oracles: Sequence[tuple[list[int], Oracle]],
    turn: int,
) -> dict[str, Any]:
    """What is predicted for the setup's one shape beside what comes out."""
    found = design(engine, setup)
    times = found.shapes[0].times
    prediction = predict(found.loop, times, rounds_of(given.alpha, given.k))
    real = measured(engine, factory, given, oracles, turn)
    rounds = Rounds(given.k, real["shares"])
    known = predict(found.loop, times, rounds)
    return {
        "first_ms": {str(point.rows): point.ms for point in times.first.points},
        "later_ms": times.later,
        "predicted_tokens_per_second": prediction.tokens_per_second,
        "predicted_for_measured_rounds": known.tokens_per_second,
        "measured_tokens_per_second": real["own"],
        "predicted_plain": found.loop.plain_speed,
        "measured_plain": real["plain"],
        "tokens_per_round": known.tokens_per_round,
        "predicted_speedup": prediction.speedup,
        "predicted_speedup_for_measured_rounds": known.speedup,
        "measured_speedup": real["speedup"],
        "predicted_over_measured": prediction.tokens_per_second / real["own"],
        "predicted_over_measured_for_measured_rounds": known.tokens_per_second / real["own"],
        "predicted_over_measured_speedup_for_measured_rounds": known.speedup / real["speedup"],
        "identical": real["identical"],
        "answers": real["answers"],
        "largest_margin": real["margin"],
        "predicted_ms": predicted_parts(found.loop, times, rounds),
        "measured_ms": real["spent"],
    }


def middle(turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of several turns' figures; counts add up, and of margins the largest counts."""
    whole = {"identical": sum, "answers": sum, "largest_margin": max}
    found: dict[str, Any] = {}
    for name, value in turns[0].items():
        values = [turn[name] for turn in turns]
        if isinstance(value, dict):
            found[name] = middle(values)
        else:
            found[name] = whole.get(name, median)(values)
    ratios = [turn["predicted_over_measured_for_measured_rounds"] for turn in turns if "answers" in turn]
    return {**found, **({"each_turn": ratios} if ratios else {})}


def main(given: argparse.Namespace) -> None:
    tell_time_by(CLOCKS[given.clock])
    engine = load(given.model, weights=given.weights, dtype=given.dtype)
    config = config_of(given.model, given.dtype)
    prompts = [encode([{"role": "user", "content": text}], engine.tokenizer) for text in PROMPTS]
    oracles = [(prompt, Oracle(engine, prompt, given.new)) for prompt in prompts]
    shapes = [DraftShape.parse(text, config) for text in SHAPES]
    weights = given.weights or str(engine.runner.dtype).removeprefix("torch.")
    prefix = round(mean(map(len, prompts))) + given.new // 2
    setup = Setup(
        config=config, weights=weights, held=given.weights, shapes=shapes, prefix=prefix, repeats=given.bursts
    )
    begun = time.perf_counter()
    factories = {shape: drafting(engine, config, shape, given.weights) for shape in shapes}
    for turn in range(given.repeats):  # the oracles learn all texts that come up
        measured(engine, factories[shapes[0]], given, oracles, turn)
    passes = [
        # predicted right before it is measured, for the machine is not the same from minute to minute
        [compared(engine, replace(setup, shapes=[shape]), factories[shape], given, oracles, turn) for shape in shapes]
        for turn in range(given.repeats)
    ]
    rows = [{"shape": shape.name, **middle([one[n] for one in passes])} for n, shape in enumerate(shapes)]
    report = {
        **conditions(engine, shlex.join(["python", *sys.argv])),
        "weights": weights,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "alpha": given.alpha,
        "k": given.k,
        "new_tokens": given.new,
        "prefix": prefix,
        "note": given.note,
        "rounding_margin": rounding_margin(engine.runner.dtype, engine.runner.device),
        "clock": given.clock,
        "seconds": time.perf_counter() - begun,
        "shapes": rows,
    }
    out = Path(given.out)
    kept = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    out.write_text(json.dumps({**kept, weights: report}, indent=1) + "\n", encoding="utf-8")
    table = Table(
        "shape", "predicted", "for its rounds", "measured", "over measured", "speed-up", "its own", "identical"
    )
    names = (
        "predicted_tokens_per_second",
        "predicted_for_measured_rounds",
        "measured_tokens_per_second",
        "predicted_over_measured_for_measured_rounds",
        "predicted_speedup_for_measured_rounds",
        "measured_speedup",
    )
    for row in rows:
        share = f"{row['identical']:.0f} of {row['answers']:.0f}"
        table.add_row(row["shape"], *(f"{row[name]:.3g}" for name in names), share)
    Console(width=140).print(table)


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flags.add_argument("out")
    flags.add_argument("model")
    flags.add_argument("--weights", default="")
    flags.add_argument("--dtype")
    flags.add_argument("--alpha", type=float, default=0.7)
    flags.add_argument("--k", type=int, default=3)
    flags.add_argument("--new", type=int, default=64)
    flags.add_argument("--repeats", type=int, default=3)
    flags.add_argument("--bursts", type=int, default=9, help="repeats of the measurement that the prediction rests on")
    flags.add_argument("--clock", choices=CLOCKS, default="wall")
    flags.add_argument("--note", default="", help="what else ran on the machine")
    main(flags.parse_args())
