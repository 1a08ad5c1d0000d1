"""Drafters that read the prompt first: whether that pays in the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from forerun.core.policy import LengthPolicy
from forerun.core.values import Step
from forerun.policies import fixed
from forerun.policies.bounded import Bounded
from forerun.policies.cost import build
from forerun.policies.governor import Governor, LossAccount
from forerun.policies.prompt_reading import AnswerLengths, best_rate, gained

from .worlds import World, best_fixed, rounds, speed, steady, varied


def test_before_an_answer_has_ended_answers_are_as_long_as_they_may_be() -> None:
    assert AnswerLengths().expected(128) == 128


def test_the_lengths_of_answers_are_learnt() -> None:
    lengths = AnswerLengths()
    for _ in range(400):
        lengths.add(10)
    assert lengths.expected(1000) == pytest.approx(30, abs=1)  # the bound counts as one of about fifty answers
    assert lengths.expected(12) <= 12


def test_the_rate_is_that_of_the_best_draft_length() -> None:
    """One token: 1.8 in 1.1; two: 2.44 in 1.2; three: 2.952 in 1.3, and so on."""
    by_hand = max((1 - 0.8 ** (k + 1)) / 0.2 / (1 + 0.1 * k) for k in range(1, 21))
    assert best_rate(0.8, 0.8, 0.1, lambda rows: 1.0, 20) == pytest.approx(by_hand)
    assert best_rate(0.8, 0.8, 0.1, lambda rows: 1.0, 1) == pytest.approx(1.8 / 1.1)


def test_no_rate_is_below_plain_decodings() -> None:
    assert best_rate(0.01, 0.01, 0.5, lambda rows: 1.0, 20) == 1


def test_an_answer_gains_the_rounds_that_drafts_save() -> None:
    assert gained(30, 1.5) == pytest.approx(10)
    assert gained(30, 1.0) == 0


def world(length: int, reading: float, requests: int = 20, acceptance: float = 0.8) -> World:
    """reading: plain rounds that the prompt of 1000 tokens takes the drafter."""
    answers = steady(acceptance, requests, length, seed=3)
    return World(answers, 0.1, lambda rows: 1 + 0.02 * (rows - 1), noise=0.05, prompt=1000, reading=reading / 1000)


@pytest.mark.parametrize("reading", [0.0, 2.0, 5.0, 10.0, 20.0, 60.0])
@pytest.mark.parametrize("length", [8, 24, 100])
def test_it_is_hardly_slower_than_the_best_of_drafting_and_plain_decoding(length: int, reading: float) -> None:
    """Also where drafting short answers to long prompts does not pay. The first answers teach what reading costs."""
    one = world(length, reading, requests=2400 // length)
    assert speed(one, build()) > 0.94 * best_fixed(one)


def test_short_answers_to_long_prompts_are_not_drafted() -> None:
    """Drafting would make them slower by more than a third."""
    one = world(10, 12.0, requests=200)
    assert speed(one, fixed.build(k=4)) < 0.7
    assert speed(one, build()) > 0.96
    drafted = [bool(steps) for steps, round in rounds(one, build())]
    assert sum(drafted[-500:]) < 50


def test_the_same_prompts_are_drafted_where_answers_are_long() -> None:
    one = world(200, 12.0)
    assert speed(one, build()) > 0.95 * best_fixed(one)
    assert speed(one, build()) > 1.3


def test_given_costs_tell_what_reading_takes() -> None:
    """A tenth of a forward of 4000 rows, each 0.02 of one: 8.1 plain rounds."""
    make = build(draft_ratio=0.1, row_ratio=0.02)
    for room, stops in ((2, True), (400, False)):
        policy = make()
        policy.begin(4000, room)
        assert policy.should_stop([]) == stops


def test_a_drafter_with_nothing_to_read_is_asked_as_before() -> None:
    policy = build(draft_ratio=0.1, row_ratio=0.02)()
    policy.begin(0, 2)
    assert not policy.should_stop([])


def test_copied_drafts_need_no_reading() -> None:
    one = World(
        varied(0.6, 60, 40, seed=4, copied=True), 0.001, lambda rows: 1 + 0.02 * (rows - 1), noise=0.05, prompt=1000
    )
    assert speed(one, build()) > 0.95 * best_fixed(one)


class Noting(LengthPolicy):
    """Notes what it is told of a request's beginning and end."""

    def __init__(self) -> None:
        self.noted: list[object] = []

    def begin(self, unread: int, room: int, copies: bool = False) -> None:
        self.noted.append((unread, room))

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return False

    def end(self) -> None:
        self.noted.append("end")


@pytest.mark.parametrize(
    "around", [lambda inner: Governor(inner, LossAccount(1.0, 0.01)), lambda inner: Bounded(inner, 0, 5)]
)
def test_policies_around_another_one_hand_on_where_a_request_begins_and_ends(
    around: Callable[[LengthPolicy], LengthPolicy],
) -> None:
    inner = Noting()
    policy = around(inner)
    policy.begin(1000, 2)
    policy.end()
    assert inner.noted == [(1000, 2), "end"]
