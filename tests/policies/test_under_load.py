"""The governor around the cost rule, alone and among many requests whose forwards are shared: drafts don't cost throughput.

Times are those of a model on two cores, whose rows beyond the first few take most of a forward's time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest

from forerun.core.policy import LengthPolicy
from forerun.core.values import Draft, Pack, Round, Step, Timing, Verdict
from forerun.policies.governor import build

MILLISECONDS = ((1, 1.67), (2, 1.82), (4, 2.67), (8, 4.41), (16, 7.98), (32, 15.2), (64, 29.6), (192, 88.0))
FINDS, CONFIDENCES, MOST = 0.35, (0.2, 0.4, 0.6, 0.8, 0.95), 8
LENGTH = 64  # tokens of an answer


def seconds(rows: int) -> float:
    for (fewer, less), (more, most) in pairwise(MILLISECONDS):
        if rows <= more:
            return (less + (most - less) * (rows - fewer) / (more - fewer)) / 1000
    raise AssertionError(rows)


@dataclass
class Running:
    """A request; a copying drafter finds something now and then, and tells how likely it is."""

    policy: LengthPolicy
    left: int = LENGTH

    def draft(self, chance: Random) -> list[Step] | None:
        if self.policy.should_stop([]):
            return None
        steps: list[Step] = []
        if chance.random() < FINDS:
            first = chance.choice(CONFIDENCES)
            while len(steps) < MOST and not (steps and self.policy.should_stop(steps)):
                likely = min(first + 0.05 * len(steps), 0.98)
                steps.append(Step((1,), (len(steps) - 1,), (None,), confidence=likely))
        return steps

    def verified(self, steps: list[Step] | None, pack: Pack | None, took: float, chance: Random) -> int:
        """The tokens that came of it."""
        accepted = 0
        for step in steps or ():
            if chance.random() >= (step.confidence or 0.0):
                break
            accepted += 1
        tokens = accepted + 1
        timing = Timing(draft=0.0 if steps is None else 2e-5, forward=took, decide=2e-5, keep=1e-5, pack=pack)
        verdict = Verdict(tuple(range(accepted)), (1,) * tokens)
        done = Round(verdict.tokens, Draft.of(steps or []), verdict, 10, timing=timing, held_back=steps is None)
        self.policy.observe(steps or [], done)
        self.left -= tokens
        return tokens


def beside_plain(make: Callable[[], LengthPolicy], requests: int, rounds: int, chance: Random) -> float:
    """Tokens a second with drafts over those without, of so many requests that share every forward."""
    running: list[Running] = []
    tokens, time = 0, 0.0
    for _ in range(rounds):
        running = [one for one in running if one.left > 0]
        while len(running) < requests:
            running.append(Running(make()))
            running[-1].policy.begin(0, LENGTH)
        drafts = [one.draft(chance) for one in running]
        rows = requests + sum(len(steps or ()) for steps in drafts)
        took = seconds(rows) * chance.uniform(1.0, 1.1)
        time += took
        pack = Pack(requests, rows, took) if requests > 1 else None
        tokens += sum(one.verified(steps, pack, took, chance) for one, steps in zip(running, drafts, strict=True))
    return tokens / time * seconds(requests) * 1.05 / requests


@pytest.mark.parametrize("seed", range(2))
def test_what_was_learnt_alone_costs_nothing_among_many(seed: int) -> None:
    chance, make = Random(seed), build()

    assert beside_plain(make, 1, 300, chance) > 1.3
    assert beside_plain(make, 4, 120, chance) > 0.98
    assert beside_plain(make, 8, 80, chance) > 0.98
    assert beside_plain(make, 16, 60, chance) > 0.98
    assert beside_plain(make, 1, 150, chance) > 1.15  # and it is known again that drafts pay alone
