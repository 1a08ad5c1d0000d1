import math
from typing import Any

import pytest

from forerun.core.chance import Seeded
from forerun.core.law import PointMass
from forerun.core.values import ROOT, Context, Draft, DraftCounts, Sampling, Step


def context(ids: list[int], **options: Any) -> Context:
    return Context(ids, Seeded(0), **options)


def test_a_draft_is_the_sum_of_its_steps() -> None:
    law = PointMass(5)
    steps = [Step((4, 5), (ROOT, ROOT), (None, law)), Step((6,), (1,), (None,))]
    draft = Draft.of(steps)
    assert (draft.tokens, draft.parents, draft.laws) == ((4, 5, 6), (ROOT, ROOT, 1), (None, law, None))
    assert len(draft) == 3
    assert len(Draft.of([])) == 0


def test_a_drafts_effort_is_the_sum_of_its_steps() -> None:
    steps = [
        Step((4,), (ROOT,), (None,), counts=DraftCounts(1, 2, 3)),
        Step((5,), (0,), (None,), counts=DraftCounts(4, 5, 6)),
    ]
    assert Draft.of(steps).counts == DraftCounts(forwards=5, merged=7, saved=9)
    assert Draft.of([]).counts == Draft().counts == DraftCounts(0, 0, 0)
    assert Draft.of(steps, DraftCounts(1, invalid=1)).counts == DraftCounts(6, 7, 9, 1)


@pytest.mark.parametrize(("parents", "node"), [((0,), 0), ((-2,), 0), ((ROOT, 1), 1), ((ROOT, 0, 2), 2)])
def test_a_parent_must_come_before_its_child(parents: tuple[int, ...], node: int) -> None:
    with pytest.raises(
        ValueError, match=rf"draft node {node} has parent {parents[node]}; it must lie in \[-1, {node - 1}\]"
    ):
        Draft(tuple(parents), parents, (None,) * len(parents))


@pytest.mark.parametrize(("parents", "laws"), [((), (None,)), ((ROOT,), ())])
def test_a_draft_needs_a_parent_and_a_law_for_each_token(parents: Any, laws: Any) -> None:
    with pytest.raises(ValueError, match="a parent and a law for each token, got 1 tokens"):
        Draft((3,), parents, laws)


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("temperature", -0.1, r"0 \(greedy\) or at least 1e-6"),
        ("temperature", 1e-9, r"0 \(greedy\) or at least 1e-6"),
        ("temperature", math.inf, r"0 \(greedy\) or at least 1e-6"),
        ("temperature", math.nan, r"0 \(greedy\) or at least 1e-6"),
        ("top_k", -1, "at least 0"),
        ("top_p", 0.0, r"in \(0, 1\]"),
        ("top_p", 1.5, r"in \(0, 1\]"),
        ("min_p", -0.1, r"in \[0, 1\]"),
        ("min_p", 1.1, r"in \[0, 1\]"),
        ("repetition_penalty", 0.0, "above 0"),
        ("repetition_penalty", math.inf, "above 0"),
        ("frequency_penalty", math.nan, "finite"),
        ("presence_penalty", math.inf, "finite"),
        ("no_repeat_ngram", -1, "at least 0"),
    ],
)
def test_a_sampling_option_out_of_range_is_told_with_its_value_and_range(option: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"{option} must be {allowed}.*, got {value}"):
        Sampling(**{option: value})


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 1e-6},
        {"top_p": 1.0},
        {"top_p": 1e-9},
        {"min_p": 0.0},
        {"min_p": 1.0},
        {"repetition_penalty": 0.5},
        {"frequency_penalty": -2.0},
    ],
)
def test_the_ends_of_the_ranges_are_allowed(options: dict[str, Any]) -> None:
    Sampling(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.1},
        {"frequency_penalty": 0.1},
        {"presence_penalty": -0.1},
        {"no_repeat_ngram": 2},
        {"processors": (lambda ids, scores: scores,)},
    ],
)
def test_what_depends_on_earlier_tokens_uses_history(options: dict[str, Any]) -> None:
    assert Sampling(**options).uses_history


def test_what_depends_on_the_row_alone_does_not_use_history() -> None:
    assert not Sampling(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1).uses_history


def test_room_counts_down_to_the_nearer_of_both_limits() -> None:
    ample = context([1, 2, 3], max_new_tokens=5)
    tight = context([1, 2, 3], max_new_tokens=5, max_length=6)
    assert (ample.room, tight.room) == (5, 3)
    ample.extend([4, 5])
    tight.extend([4, 5])
    assert (ample.room, tight.room) == (3, 1)


def test_extend_stops_where_the_room_ends() -> None:
    request = context([1], max_new_tokens=2)
    assert request.extend([4, 5, 6]) == (4, 5)
    assert request.ids == [1, 4, 5]
    assert request.finish_reason == "length"
    assert request.extend([7]) == ()


def test_extend_stops_after_the_first_end_of_sequence() -> None:
    request = context([1], eos=frozenset({8, 9}))
    assert request.extend([4, 9, 8]) == (4, 9)
    assert request.finish_reason == "stop"


def test_an_end_of_sequence_on_the_last_token_of_room_is_a_stop() -> None:
    request = context([1], max_new_tokens=2, eos=frozenset({9}))
    request.extend([4, 9])
    assert request.finish_reason == "stop"


def test_an_end_of_sequence_in_the_prompt_does_not_end_the_request() -> None:
    request = context([9], eos=frozenset({9}))
    assert request.finish_reason is None
    request.extend([4])
    assert request.finish_reason is None


def test_no_new_tokens_are_no_room() -> None:
    assert context([1, 2], max_new_tokens=0).finish_reason == "length"


def test_a_prompt_that_just_fits_leaves_no_room() -> None:
    assert context([1, 2], max_length=2).room == 0


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([], {}, "prompt must be at least one token, got an empty prompt"),
        ([1], {"max_new_tokens": -1}, "max_new_tokens must be at least 0, got -1"),
        ([1, 2, 3], {"max_length": 2}, "the prompt has 3 tokens and the context holds 2; shorten the prompt"),
    ],
)
def test_a_request_that_can_not_run_is_refused_at_once(ids: list[int], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        context(ids, **options)
