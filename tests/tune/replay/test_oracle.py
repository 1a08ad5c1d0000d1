"""Nobody beats the oracle."""

from __future__ import annotations

import random
from itertools import product

import pytest

from forerun.core.cost import Cost, Point
from forerun.policies.base import POLICIES
from forerun.tune.replay.oracle import agreeing, cheapest, oracle
from forerun.tune.replay.report import default_rules, fixed_lengths
from forerun.tune.replay.round_costs import RoundCosts, constant
from forerun.tune.replay.simulate import Replay

from ..traced import by_hand

ABOUT = ("tiny", "HFRunner", "float32")


def steep() -> RoundCosts:
    """Verifying eight rows takes three times as long as one, and a drafter reads its prompt first."""
    verify = Cost(*ABOUT, "full", (Point(1, 4, 2.0), Point(2, 4, 2.1), Point(8, 4, 6.0), Point(1, 40, 3.0)))
    return RoundCosts("steep", verify, Cost(*ABOUT, "draft", (Point(1, 4, 0.4), Point(4, 4, 1.0))), constant(0.2).draft)


def random_trace(seed: int, answers: int = 3, length: int = 12) -> Replay:
    draw = random.Random(seed)
    made = []
    for _ in range(answers):
        draft_points = []
        for known in range(1, length):
            drafted = min(4, length - known - 1)
            draft_points.append((draw.randint(0, drafted), [draw.random() for _ in range(drafted)]))
        made.append(draft_points)
    return Replay(by_hand(*made), constant(0.3) if seed % 2 else steep())


@pytest.mark.parametrize("seed", range(6))
def test_no_rule_and_no_fixed_length_is_faster_than_the_oracle(seed: int) -> None:
    replay = random_trace(seed)
    most = oracle(replay).speedup + 1e-9

    for one in [*fixed_lengths(replay), agreeing(replay)]:
        assert one.speedup <= most
    for (variant,) in default_rules():
        assert replay.policy(variant.build()).speedup <= most, variant.label
    assert most >= 1
    assert len(default_rules()) < len(POLICIES.names)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_oracle_finds_the_best_of_all_plans(seed: int) -> None:
    replay = random_trace(seed, answers=1, length=7)
    every = product(*(range(len(one.drafted) + 1) for one in replay.trace.answers[0].positions))

    assert oracle(replay).seconds == pytest.approx(min(replay.planned([plan]).seconds for plan in every))


def test_the_agreeing_plan_discards_nothing_and_has_the_fewest_rounds() -> None:
    replay = random_trace(3)
    found = agreeing(replay)

    assert found.stats.discard_rate == 0
    assert found.stats.rounds == min(one.stats.rounds for one in [*fixed_lengths(replay), found])


def test_a_draft_that_costs_more_than_it_saves_is_left_out() -> None:
    trace = by_hand([(1, [0.5]), (1, [0.5]), (0, [])])

    assert cheapest(Replay(trace, constant(1.5)), 0) == [0, 0, 0]
    assert sum(cheapest(Replay(trace, constant(0.5)), 0)) == 1
