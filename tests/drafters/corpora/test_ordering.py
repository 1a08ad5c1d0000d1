from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.drafters.corpora import ordering
from forerun.drafters.corpora.ordering import LONGEST, order_by_endings


def ending(tokens: NDArray[np.uint16], place: int) -> list[int]:
    read: list[int] = tokens[max(place + 1 - LONGEST, 0) : place + 1].tolist()
    return read[::-1]


def ordered(tokens: NDArray[Any], most: int) -> list[int]:
    return [place for piece in order_by_endings(tokens, most) for place in piece.tolist()]


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize("vocabulary", [1, 2, 5, 300])
@pytest.mark.parametrize("length", [1, 2, 3, 15, 16, 17, 33, 200])
def test_places_stand_in_the_order_of_their_last_tokens_read_backwards(
    vocabulary: int, length: int, most: int, kind: type
) -> None:
    tokens = np.random.default_rng(length).integers(0, vocabulary, length).astype(kind)
    order = ordered(tokens, most)
    assert sorted(order) == list(range(length))
    endings = [ending(tokens, place) for place in order]
    assert endings == sorted(endings)


def test_a_loop_is_read_up_to_the_longest_match_only() -> None:
    tokens = np.asarray([7, 8] * 100, np.uint32)
    endings = [ending(tokens, place) for place in ordered(tokens, 1000)]
    assert endings == sorted(endings)


def test_the_largest_tokens_of_both_forms_are_told_apart() -> None:
    for kind, most in ((np.uint16, 2**16 - 2), (np.uint32, 2**18)):
        assert ordered(np.asarray([most, 0, most - 1, most], kind), 1000) == [1, 2, 0, 3]


@pytest.mark.parametrize("most", [1, 50, 120, 1000])
def test_a_piece_holds_no_more_places_than_are_sorted_at_once(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(ordering, "READ", 60)
    tokens = np.minimum(np.random.default_rng(0).zipf(1.3, 900), 30).astype(np.uint16)
    pieces = list(order_by_endings(tokens, most))
    assert max(map(len, pieces)) <= max(most, 60)
    endings = [ending(tokens, place) for piece in pieces for place in piece.tolist()]
    assert len(endings) == 900
    assert endings == sorted(endings)
