from __future__ import annotations

from random import Random
from sys import getsizeof

import pytest

from forerun.drafters.copying.text_index import LONGEST, MOST_PLACES, SIZES, TextIndex


def indexed(text: list[int]) -> TextIndex:
    index = TextIndex()
    index.extend(text)
    return index


def places(index: TextIndex, text: list[int]) -> list[tuple[int, int]]:
    return [(match.place, match.length) for match in index.matches(text)]


def test_a_place_is_where_the_text_went_on_and_knows_how_much_matched() -> None:
    assert places(indexed([1, 2, 3, 4, 9, 9]), [7, 2, 3]) == [(3, 2)]


def test_the_newest_place_comes_first() -> None:
    assert places(indexed([1, 2, 50, 1, 2, 60, 0]), [1, 2]) == [(5, 2), (2, 2)]


def test_places_of_more_matching_tokens_hide_those_of_fewer() -> None:
    assert places(indexed([1, 2, 3, 50, 3, 60]), [1, 2, 3]) == [(3, 3)]


def test_a_match_is_measured_beyond_the_sizes_that_are_looked_up() -> None:
    text = list(range(100, 120))
    assert places(indexed([*text, 5]), [1, *text]) == [(20, 20)]


def test_a_match_is_measured_up_to_a_bound() -> None:
    text = list(range(200))
    assert places(indexed(text), text[:150]) == [(150, LONGEST)]


def test_so_many_places_are_told_at_most() -> None:
    index = indexed([1, 2, 3, 9] * 50)
    assert len(index.matches([1, 2, 3])) == MOST_PLACES


def test_what_never_stood_there_has_no_place() -> None:
    assert places(indexed([1, 2, 3]), [4]) == []
    assert places(TextIndex(), [1, 2, 3]) == []
    assert places(indexed([1, 2, 3]), []) == []


def test_a_text_that_comes_bit_by_bit_is_indexed_as_one_that_comes_at_once() -> None:
    text = Random(0).choices(range(5), k=300)
    slowly = TextIndex()
    for token in text:
        slowly.extend([token])
    for end in range(1, 40):
        assert places(slowly, text[:end]) == places(indexed(text), text[:end])


def test_every_place_is_one_that_a_search_finds() -> None:
    text = Random(1).choices(range(4), k=200)
    index = indexed(text[:150])
    for end in range(3, 200):
        for match in index.matches(text[:end]):
            assert text[match.place - match.length : match.place] == text[end - match.length : end]


@pytest.mark.parametrize("size", SIZES)
def test_a_text_shorter_than_a_size_is_searched_with_the_others(size: int) -> None:
    index = indexed([1, 2, 3, 4])
    assert places(index, [1, 2, 3][-size:]) == [(3, size)]


def test_large_tokens_are_told_apart() -> None:
    large = 2**31
    assert places(indexed([large, 1, 7, 0]), [large + 1, 1]) == [(2, 1)]


def test_a_token_takes_less_room_than_the_docstring_says() -> None:
    index = indexed(list(range(20_000)))
    tables = sum(
        getsizeof(newest) + sum(getsizeof(key) + getsizeof(place) for key, place in newest.items())
        for newest in index._newest
    )
    columns = getsizeof(index.ids) + sum(map(getsizeof, index._before))
    assert (tables + columns) / 20_000 < 500
