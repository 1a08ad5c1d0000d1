"""Tokens a second from times and acceptance, checked against rounds counted by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from forerun.core.cost import Cost, Point
from forerun.design.throughput import (
    DraftTimes,
    Loop,
    Overhead,
    Rounds,
    best,
    needed,
    predict,
    round_ms,
    rounds_of,
)

FREE = Overhead(0.0)


def cost(*points: tuple[int, float]) -> Cost:
    return Cost("m", "LeanRunner", "int4", "full", tuple(Point(rows, 64, ms) for rows, ms in points))


FLAT = Loop(verify=cost((1, 10.0)), plain=10.0, overhead=FREE)
CHEAP = DraftTimes(first=cost((1, 1.0)), later=1.0)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9])
def test_tokens_a_round_are_leviathans(alpha: float, k: int) -> None:
    rounds = rounds_of(alpha, k)
    assert sum(rounds.shares) == pytest.approx(1)
    assert rounds.tokens_per_round == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


def test_the_shares_are_those_of_coins() -> None:
    rng = random.Random(0)
    counts = [0] * 4
    for _ in range(20000):
        run = 0
        while run < 3 and rng.random() < 0.6:
            run += 1
        counts[run] += 1
    assert [count / 20000 for count in counts] == pytest.approx(rounds_of(0.6, 3).shares, abs=0.01)


@pytest.mark.parametrize("alpha", [1.0, -0.1, 2.0, float("nan")])
def test_an_acceptance_outside_of_0_to_1_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"an acceptance must be in \[0, 1\), got"):
        rounds_of(alpha, 3)


def test_without_overhead_and_with_flat_times_it_is_the_formula_of_the_paper() -> None:
    told = predict(FLAT, CHEAP, rounds_of(0.5, 3))
    assert told.tokens_per_second == pytest.approx(1000 * 1.875 / (3 * 1.0 + 10.0))
    assert told.speedup == pytest.approx(1.875 / 1.3)


def test_the_first_forward_reads_what_the_round_before_emitted() -> None:
    draft = DraftTimes(first=cost((1, 1.0), (3, 5.0)), later=1.0)
    always_two = Rounds(2, (0.0, 1.0, 0.0))
    assert round_ms(FLAT, draft, always_two) == pytest.approx(3.0 + 1.0 + 10.0)
    half = Rounds(2, (0.5, 0.0, 0.5))
    assert round_ms(FLAT, draft, half) == pytest.approx(0.5 * 1.0 + 0.5 * 5.0 + 1.0 + 10.0)


def test_the_verification_costs_what_its_rows_do() -> None:
    loop = replace(FLAT, verify=cost((1, 10.0), (4, 16.0)))
    assert round_ms(loop, CHEAP, rounds_of(0.0, 3)) == pytest.approx(3.0 + 16.0)


def test_overhead_is_paid_for_rounds_drafted_and_emitted_tokens() -> None:
    loop = replace(FLAT, overhead=Overhead(1.0, 0.1, 0.5))
    assert round_ms(loop, CHEAP, rounds_of(0.5, 3)) == pytest.approx(13.0 + 1.0 + 0.3 + 0.5 * 1.875)
    assert loop.plain_speed == pytest.approx(1000 / 11.5)


def test_reading_the_prompt_is_shared_out_among_the_tokens_of_an_answer() -> None:
    """100 tokens of answer, 200 ms of reading: with 1.875 tokens in 13 ms, 100 of them take 693 ms and the reading."""
    draft = replace(CHEAP, reading=2.0)
    told = predict(FLAT, draft, rounds_of(0.5, 3))
    assert told.tokens_per_second == pytest.approx(100 / (0.100 / 1.875 * 13 + 0.2))
    needs, free = needed(FLAT, draft, 1.0), needed(FLAT, CHEAP, 1.0)
    assert needs is not None
    assert free is not None
    assert needs > free + 0.1


def test_a_plain_step_may_cost_something_else_than_a_verified_row() -> None:
    assert predict(replace(FLAT, plain=5.0), CHEAP, rounds_of(0.5, 3)).speedup == pytest.approx(0.5 * 1.875 / 1.3)


def test_the_best_length_is_the_fastest_of_all() -> None:
    told = best(FLAT, CHEAP, lambda k: rounds_of(0.8, k))
    speeds = {k: predict(FLAT, CHEAP, rounds_of(0.8, k)).tokens_per_second for k in (1, 2, 3, 4, 5, 6, 8, 10, 12)}
    assert told.tokens_per_second == max(speeds.values())
    assert speeds[told.k] == told.tokens_per_second


def test_surer_drafts_get_longer() -> None:
    lengths = [best(FLAT, CHEAP, lambda k, a=alpha: rounds_of(a, k)).k for alpha in (0.1, 0.5, 0.9)]  # type: ignore[misc]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


@pytest.mark.parametrize("goal", [1.0, 1.3, 2.0])
def test_what_is_needed_is_just_enough(goal: float) -> None:
    alpha = needed(FLAT, CHEAP, goal)
    assert alpha is not None

    def gain(share: float) -> float:
        return best(FLAT, CHEAP, lambda k: rounds_of(share, k)).speedup

    assert gain(alpha) >= goal > gain(alpha - 0.001)


def test_the_break_even_of_one_token_is_its_relative_cost() -> None:
    free_after_one = DraftTimes(first=cost((1, 2.0)), later=1000.0)
    assert needed(FLAT, free_after_one, 1.0) == pytest.approx(0.2, abs=0.001)


def test_a_draft_as_slow_as_its_target_never_pays() -> None:
    assert needed(FLAT, DraftTimes(first=cost((1, 10.0)), later=10.0), 1.3) is None


def test_a_goal_that_is_met_without_a_right_token_needs_none() -> None:
    assert needed(FLAT, CHEAP, 0.5) == 0.0
