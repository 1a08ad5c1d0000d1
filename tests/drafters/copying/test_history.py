from __future__ import annotations

import pytest

from forerun.drafters.copying.continuations import Continuations
from forerun.drafters.copying.history import History


def continued(history: History, text: list[int]) -> list[int]:
    continuations, tokens = Continuations(history.matches(text), text), []
    while (vote := continuations.vote()) is not None:
        tokens.append(vote.token)
        continuations.go_on(vote.token)
    return tokens


def test_an_answer_is_found_again() -> None:
    history = History(100)
    history.add([1, 2, 3, 4, 5])
    assert continued(history, [9, 2, 3]) == [4, 5]


def test_an_answer_is_not_continued_with_the_next_one() -> None:
    history = History(100)
    history.add([1, 2])
    history.add([7, 8])
    assert continued(history, [1]) == [2]
    assert history.matches([1, 2, 7]) != []
    assert all(match.length == 1 for match in history.matches([1, 2, 7]))


@pytest.mark.parametrize("most", [10, 50, 1000])
def test_no_more_than_the_bound_is_kept(most: int) -> None:
    history = History(most)
    for start in range(0, 3000, 7):
        history.add(list(range(start, start + 7)))
        assert len(history) <= most


def test_old_answers_are_forgotten_and_new_ones_found() -> None:
    history = History(100)
    for start in range(0, 400, 10):
        history.add(list(range(start, start + 10)))
    assert continued(history, [3]) == []
    assert continued(history, [393]) == [394, 395, 396, 397, 398, 399]


def test_of_an_answer_that_is_too_long_the_end_is_kept() -> None:
    history = History(20)
    history.add(list(range(100)))
    assert continued(history, [97]) == [98, 99]
    assert continued(history, [50]) == []
    assert len(history) <= 20


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_a_history_without_room_keeps_nothing(most: int) -> None:
    history = History(most)
    history.add([1, 2, 3])
    assert len(history) == 0
    assert history.matches([1]) == []


def test_an_empty_answer_is_none() -> None:
    history = History(100)
    history.add([])
    assert len(history) == 0


def test_both_halves_are_searched() -> None:
    history = History(40)
    history.add([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
    history.add([21, 22, 23, 24, 25, 26, 27, 28, 29, 30])
    assert continued(history, [10])[:2] == [11, 12]
    assert continued(history, [28])[:2] == [29, 30]


def test_it_knows_the_tokens_that_stand_in_an_answer() -> None:
    history = History(8)
    assert history.empty
    assert not history.knows(1)
    history.add([1, 2])
    assert not history.empty
    assert history.knows(1)
    assert not history.knows(3)
    for answer in ([4, 5], [6, 7], [8, 9]):
        history.add(answer)
    assert not history.knows(1)
    assert history.knows(9)
    none = History(0)
    none.add([1, 2])
    assert none.empty
