from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forerun.drafters.copying.continuations import Vote
from forerun.drafters.copying.vote_acceptance import VoteAcceptance

SURE = Vote(5, 1.0, 3, 12)
DOUBTFUL = Vote(5, 0.4, 1, 1)


def test_before_anything_was_counted_long_and_united_votes_are_likelier() -> None:
    acceptance = VoteAcceptance()
    assert acceptance.of(SURE, 0) > 0.9
    assert acceptance.of(DOUBTFUL, 0) == pytest.approx(0.4 / 3)


def test_what_was_rejected_is_believed_less() -> None:
    acceptance = VoteAcceptance()
    before = acceptance.of(SURE, 0)
    for _ in range(20):
        acceptance.learn([SURE], 0)
    assert acceptance.of(SURE, 0) < 0.2 < before


def test_the_share_of_accepted_tokens_is_what_it_comes_to() -> None:
    acceptance = VoteAcceptance()
    for turn in range(400):
        acceptance.learn([DOUBTFUL], int(turn % 10 < 7))
    assert acceptance.of(DOUBTFUL, 0) == pytest.approx(0.7, abs=0.03)


def test_votes_of_another_kind_or_place_are_counted_apart() -> None:
    acceptance = VoteAcceptance()
    for _ in range(20):
        acceptance.learn([SURE], 0)
    assert acceptance.of(SURE, 1) > 0.9
    assert acceptance.of(DOUBTFUL, 0) == pytest.approx(0.4 / 3)


def test_tokens_after_a_rejected_one_teach_nothing() -> None:
    acceptance = VoteAcceptance()
    acceptance.learn([SURE, SURE, SURE], 1)
    untouched = VoteAcceptance().of(SURE, 2)
    assert acceptance.of(SURE, 0) > untouched
    assert acceptance.of(SURE, 1) < untouched
    assert acceptance.of(SURE, 2) == untouched


def test_what_is_new_counts_more_than_what_is_old() -> None:
    acceptance = VoteAcceptance()
    for accepted in [0] * 3000 + [1] * 3000:
        acceptance.learn([DOUBTFUL], accepted)
    assert acceptance.of(DOUBTFUL, 0) > 0.9


def test_a_confidence_is_always_a_probability() -> None:
    acceptance = VoteAcceptance()
    for accepted in (0, 1, 1):
        for vote in (SURE, DOUBTFUL):
            acceptance.learn([vote], accepted)
            assert 0 < acceptance.of(vote, 0) < 1


def test_threads_lose_no_count() -> None:
    acceptance = VoteAcceptance()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: [acceptance.learn([DOUBTFUL], 1) for _ in range(50)], range(4)))
    alone = VoteAcceptance()
    for _ in range(200):
        alone.learn([DOUBTFUL], 1)
    assert acceptance.of(DOUBTFUL, 0) == alone.of(DOUBTFUL, 0)


def test_what_was_counted_goes_on_in_another_one() -> None:
    acceptance, kept = VoteAcceptance(), VoteAcceptance()
    for accepted in (2, 0, 1):
        acceptance.learn([SURE, DOUBTFUL], accepted)
    kept.recall(json.loads(json.dumps(acceptance.as_data())))
    assert [kept.of(vote, place) for vote in (SURE, DOUBTFUL) for place in (0, 1)] == [
        acceptance.of(vote, place) for vote in (SURE, DOUBTFUL) for place in (0, 1)
    ]


@pytest.mark.parametrize("data", [None, {}, [[1, 2, 3]], [[1, 1, 1, 1, 1, "x"]], [[1, 1, 1, 1, -1, 1]]])
def test_what_is_damaged_is_refused_and_changes_nothing(data: Any) -> None:
    acceptance = VoteAcceptance()
    acceptance.learn([SURE], 1)
    before = acceptance.as_data()
    with pytest.raises(ValueError, match="kept"):
        acceptance.recall(data)
    assert acceptance.as_data() == before


def test_of_a_table_the_share_is_the_first_guess() -> None:
    assert VoteAcceptance().of(Vote(5, 0.35, 0, 3), 0) == pytest.approx(0.35)


def test_tokens_of_a_table_are_counted_apart_from_those_of_places() -> None:
    acceptance, said = VoteAcceptance(), Vote(5, 0.9, 0, 3)
    before = acceptance.of(Vote(5, 0.9, 1, 3), 0)
    for _ in range(20):
        acceptance.learn([said], 0)
    assert acceptance.of(said, 0) < 0.3
    assert acceptance.of(Vote(5, 0.9, 1, 3), 0) == before
