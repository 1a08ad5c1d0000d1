from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forerun.drafters.copying.text_index import Match
from forerun.drafters.corpora.ordering import LONGEST, order_by_endings
from forerun.drafters.corpora.places import FOLLOWING, MOST_PLACES, Places

VOCABULARY = 100


def held(*texts: Sequence[int], width: int = 2) -> Places:
    tokens = np.asarray([token for text in texts for token in (*text, VOCABULARY)], f"<u{width}")
    order = np.concatenate(list(order_by_endings(tokens, 1000)))
    counts = np.bincount(tokens, minlength=VOCABULARY + 1)
    return Places(tokens.tobytes(), order.tobytes(), [0, *np.cumsum(counts).tolist()], width)


def by_hand(texts: Sequence[Sequence[int]], text: Sequence[int]) -> tuple[int, list[list[int]]]:
    """The longest match, and what follows each of its places, one by one."""
    found: dict[int, list[list[int]]] = {}
    for own in texts:
        for place in range(len(own)):
            length = 0
            while length < min(LONGEST, place + 1, len(text)) and own[place - length] == text[-1 - length]:
                length += 1
            found.setdefault(length, []).append(list(own[place + 1 : place + 1 + FOLLOWING]))
    longest = max(found)
    return longest, found[longest] if longest else []


def test_what_follows_the_longest_match_is_found() -> None:
    assert held([1, 2, 3, 4, 5], [9, 2, 3, 7]).matches([8, 1, 2, 3]) == [Match([4, 5], 0, 3)]
    assert held([1, 2, 3, 4, 5], [9, 2, 3, 7]).matches([9, 2, 3]) == [Match([7], 0, 3)]


def test_all_places_of_the_longest_match_are_found() -> None:
    found = held([1, 2, 3, 4], [5, 2, 3, 7]).matches([2, 3])
    assert sorted((list(match.ids), match.length) for match in found) == [([4], 2), ([7], 2)]


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_it_finds_what_a_search_place_by_place_finds(seed: int, width: int) -> None:
    numbers = np.random.default_rng(seed)
    texts = [numbers.integers(0, 12, 40).tolist() for _ in range(6)]
    places = held(*texts, width=width)
    for _ in range(60):
        text = numbers.integers(0, 13, 6).tolist()
        longest, following = by_hand(texts, text)
        matches = places.matches(text)
        assert {match.length for match in matches} <= {longest}
        assert len(matches) == min(len(following), MOST_PLACES)
        assert all(match.ids in following for match in matches)


def test_a_match_ends_at_the_end_of_a_text_and_so_does_what_follows() -> None:
    assert held([1, 2], [3, 4]).matches([1, 2, 3]) == [Match([4], 0, 1)]
    assert held([1, 2], [3, 4]).matches([2]) == [Match([], 0, 1)]


def test_a_token_that_is_not_there_has_no_match() -> None:
    assert held([1, 2, 3]).matches([2, 50]) == []


def test_of_many_places_some_of_all_the_range_are_taken() -> None:
    texts = [[number, 50, 60, number] for number in range(40)]
    found = held(*texts).matches([50, 60])
    assert len(found) == MOST_PLACES
    followers = [match.ids[0] for match in found]
    assert len({*followers}) == MOST_PLACES
    assert max(followers) - min(followers) > 30


def test_long_matches_are_measured_up_to_the_longest() -> None:
    text = [number % 90 for number in range(80)]
    assert held([*text, 95]).matches(text) == [Match([95], 0, LONGEST)]
