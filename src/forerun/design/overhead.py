"""The time of a round outside of forwards, measured on the real loop with a drafter that has no model.

The drafter gives tokens that are known to be right or wrong, so a round has everything but the draft's steps: the target's
laws, verification, keeping, text. The target's forwards are subtracted from each answer's time. The rest is attributed to
rounds, drafted and emitted tokens by least squares.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from ..core.drafter import Drafter
from ..core.policy import LengthPolicy
from ..core.values import Context, Round, Step
from ..engine.engine import Engine
from ..engine.request import RequestOptions
from ..engine.timing import timed_answer
from .throughput import Overhead

TOKENS = 49
K = 6
REPEATS = 5


@final
class Scripted(Drafter):
    """Drafts `said` after the first `known` tokens of a text, each token off by `wrong`, among so many tokens."""

    def __init__(self, said: Sequence[int], known: int, wrong: int, vocabulary: int) -> None:
        self._said, self._known, self._wrong, self._vocabulary = said, known, wrong, vocabulary

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        for number, token in enumerate(self._said[len(context.ids) - self._known :]):
            yield Step(((token + self._wrong) % self._vocabulary,), (number - 1,), (None,))


@final
class _Watched(LengthPolicy):
    """Stops after k steps and adds up what the rounds took in forwards."""

    def __init__(self, k: int) -> None:
        self._k = k
        self.rounds = self.drafted = self.emitted = 0
        self.forwards = 0.0

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) >= self._k

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._k - len(steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self.rounds += 1
        self.drafted += len(round.draft)
        self.emitted += len(round.tokens)
        self.forwards += round.timing.forward


@dataclass(frozen=True, slots=True)
class _Run:
    rounds: int
    drafted: int
    emitted: int
    ms: float


def measure_overhead(engine: Engine, prefix: int, repeats: int = REPEATS) -> Overhead:
    """Of the engine's loop, after a prompt of `prefix` tokens: plain, with wrong drafts and with right ones, in turns."""
    vocabulary = engine.runner.vocab_size
    prompt = [(7 * i + 3) % vocabulary for i in range(prefix)]
    tokens = TOKENS if engine.runner.max_length is None else min(TOKENS, engine.runner.max_length - prefix)
    options: RequestOptions = {"max_new_tokens": tokens, "ignore_eos": True}
    plainly: RequestOptions = {**options, "speculate": False}
    said = list(engine.generate(prompt, **plainly).ids)

    def run(k: int, wrong: int) -> _Run:
        watched = _Watched(k)
        scripted = engine.using(lambda target: Scripted(said, prefix, wrong, vocabulary), lambda: watched)
        _, seconds = timed_answer(scripted, prompt, options)
        spent = max(seconds - watched.forwards, 0.0)
        return _Run(watched.rounds, watched.drafted, watched.emitted, 1000 * spent)

    runs = [run(k, wrong) for _ in range(repeats) for k, wrong in ((0, 0), (K, 1), (K, 0))]
    return _shared_out(runs)


def _shared_out(runs: Sequence[_Run]) -> Overhead:
    """By least squares on each answer's total; what comes out below 0 is noise."""
    counts = np.array([[one.rounds, one.drafted, one.emitted] for one in runs], dtype=float)
    found = np.linalg.lstsq(counts, np.array([one.ms for one in runs]), rcond=None)[0]
    round_ms, drafted, emitted = (max(float(value), 0.0) for value in found)
    return Overhead(round_ms, drafted, emitted)
