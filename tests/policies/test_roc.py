from random import Random
from typing import Any

import pytest

from forerun.core.policy import LengthPolicy
from forerun.policies.roc import best_threshold, build

from .rounds import recorded, round_of

PAIRS = [(0.9, True), (0.8, True), (0.7, False), (0.6, True), (0.4, False), (0.3, False)]


def observe(policy: LengthPolicy, confidences: list[float], accepted: int) -> None:
    steps = [recorded(confidence) for confidence in confidences]
    policy.observe(steps, round_of(steps, accepted))


def test_the_threshold_of_least_cost_as_computed_by_hand() -> None:
    """FPR + 3 FNR from 0.9 down: 2, 1, 4/3, 1/3, 2/3, 1."""
    assert best_threshold(PAIRS) == 0.6


def test_the_highest_of_equally_good_thresholds_is_taken() -> None:
    """From 0.9 down: 0 + 3 * 2/3 = 2, then 1 + 2, then 1 + 1 = 2, then 1 + 0 = 1; and 1 again below."""
    assert best_threshold([(0.9, True), (0.8, False), (0.7, True), (0.6, True)]) == 0.6
    assert best_threshold([(0.9, True), (0.6, True), (0.6, False)]) == 0.6


def test_equal_probabilities_stand_on_the_same_side() -> None:
    assert best_threshold([(0.5, True), (0.5, False), (0.5, True)]) == 0.5


@pytest.mark.parametrize("accepted", [True, False])
def test_one_class_alone_tells_nothing(accepted: bool) -> None:
    assert best_threshold([(0.5, accepted), (0.7, accepted)]) is None


@pytest.mark.parametrize("seed", range(5))
def test_no_threshold_costs_less(seed: int) -> None:
    random = Random(seed)
    pairs = [(round(random.random(), 1), random.random() < 0.6) for _ in range(40)]
    right = [value for value, accepted in pairs if accepted]
    wrong = [value for value, accepted in pairs if not accepted]

    def cost(threshold: float) -> float:
        passed = sum(value >= threshold for value in wrong) / len(wrong)
        return passed + 3 * sum(value < threshold for value in right) / len(right)

    found = best_threshold(pairs)
    assert found is not None
    assert cost(found) == pytest.approx(min(cost(n / 100) for n in range(0, 110, 5)))


def test_the_threshold_moves_with_the_sixth_pair_of_both_classes() -> None:
    """The token of 0.2 was right too, but letting the one of 0.6 in costs more than losing it."""
    policy = build(start=0.4)()
    observe(policy, [0.95, 0.9, 0.85, 0.2], 4)
    observe(policy, [0.6, 0.99], 0)
    assert not policy.should_stop([recorded(0.5)])
    observe(policy, [0.9], 1)
    assert policy.should_stop([recorded(0.84)])
    assert not policy.should_stop([recorded(0.85)])


def test_tokens_after_the_first_rejected_one_teach_nothing() -> None:
    """The pairs: 0.9 right, then six times 0.5 wrong; the 0.1 are never looked at."""
    policy = build()()
    observe(policy, [0.9], 1)
    for _ in range(6):
        observe(policy, [0.5, 0.1, 0.1], 0)
    assert policy.should_stop([recorded(0.89)])
    assert not policy.should_stop([recorded(0.9)])


def test_the_newest_pairs_count() -> None:
    policy = build(window=6)()
    for _ in range(6):
        observe(policy, [0.9, 0.8], 1)
    for _ in range(6):
        observe(policy, [0.5, 0.3], 1)
    assert not policy.should_stop([recorded(0.5)])


@pytest.mark.parametrize("carry", [True, False])
def test_the_next_request_begins_anew_unless_told_to_go_on(carry: bool) -> None:
    make = build(start=0.4, carry=carry)
    policy = make()
    for _ in range(3):
        observe(policy, [0.9, 0.8], 1)
    assert policy.should_stop([recorded(0.85)])
    assert make().should_stop([recorded(0.85)]) == carry


def test_it_stops_after_max_steps_and_never_before_the_first() -> None:
    policy = build(max_steps=2)()
    assert [policy.should_stop([recorded(1.0)] * n) for n in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": -0.1}, r"start must be in \[0, 1\], got -0.1"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"window": 5}, "window must be at least 6, got 5"),
    ],
)
def test_an_option_out_of_range_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)
