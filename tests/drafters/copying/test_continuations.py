from __future__ import annotations

import pytest

from forerun.drafters.copying.continuations import Continuations, Vote
from forerun.drafters.copying.text_index import Match

TEXT = [1, 2, 3, 1, 2, 4, 1, 2]


def chosen(continuations: Continuations) -> Vote | None:
    """The next vote, whose token is drafted."""
    vote = continuations.vote()
    if vote is not None:
        continuations.go_on(vote.token)
    return vote


def drafted(continuations: Continuations, most: int = 10) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < most and (vote := chosen(continuations)) is not None:
        tokens.append(vote.token)
    return tokens


def test_one_place_is_copied_to_the_end_of_its_text() -> None:
    assert drafted(Continuations([Match([7, 8, 9, 10], 1, 2)], TEXT)) == [8, 9, 10]


def test_the_token_of_most_places_is_chosen() -> None:
    matches = [Match([5], 0, 2), Match([6], 0, 2), Match([6], 0, 2)]
    assert Continuations(matches, TEXT).vote() == Vote(6, pytest.approx(2 / 3), 2, 2)


def test_a_longer_match_has_more_votes() -> None:
    matches = [Match([5], 0, 9), Match([6], 0, 2), Match([6], 0, 2)]
    assert Continuations(matches, TEXT).vote() == Vote(5, pytest.approx(9 / 13), 1, 9)


def test_of_as_many_votes_those_of_the_first_place_count() -> None:
    assert drafted(Continuations([Match([5], 0, 2), Match([6], 0, 2)], TEXT)) == [5]


def test_only_the_places_that_agreed_go_on() -> None:
    matches = [Match([5, 7], 0, 2), Match([5, 7], 0, 2), Match([6, 8], 0, 1)]
    continuations = Continuations(matches, TEXT)
    chosen(continuations)
    assert chosen(continuations) == Vote(7, 1.0, 2, 3)
    assert chosen(continuations) is None


def test_a_match_grows_with_what_is_drafted() -> None:
    continuations = Continuations([Match([5, 6, 7], 0, 4)], TEXT)
    assert [chosen(continuations), chosen(continuations)] == [Vote(5, 1.0, 1, 4), Vote(6, 1.0, 1, 5)]


def test_a_place_in_the_text_itself_runs_on_into_the_draft() -> None:
    text = [9, 1, 2, 1, 2]
    assert drafted(Continuations([Match(text, 3, 2)], text), 5) == [1, 2, 1, 2, 1]


def test_a_place_in_another_text_ends_with_it() -> None:
    text = [9, 1, 2, 1, 2]
    assert drafted(Continuations([Match(list(text), 3, 2)], text), 5) == [1, 2]


def test_nothing_is_copied_beyond_the_end_of_an_answer() -> None:
    assert drafted(Continuations([Match([5, -1, 6], 0, 2)], TEXT)) == [5]


def test_without_places_there_is_nothing_to_draft() -> None:
    assert Continuations([], TEXT).vote() is None


def test_asking_twice_gives_the_same_vote() -> None:
    continuations = Continuations([Match([5, 6], 0, 2)], TEXT)
    assert continuations.vote() == continuations.vote() == Vote(5, 1.0, 1, 2)


def test_it_goes_on_with_a_token_that_lost_the_vote() -> None:
    continuations = Continuations([Match([5, 7], 0, 9), Match([6, 8], 0, 2)], TEXT)
    assert continuations.go_on(6)
    assert continuations.vote() == Vote(8, 1.0, 1, 3)


def test_a_token_that_no_place_gave_is_told() -> None:
    continuations = Continuations([Match([5, 7], 0, 9)], TEXT)
    assert not continuations.go_on(6)
    assert continuations.vote() is None
