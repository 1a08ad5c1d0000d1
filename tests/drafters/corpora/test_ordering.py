from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.drafters.copying.text_index import LONGEST
from forerun.drafters.corpora.ordering import order_by_endings


def ending(tokens: NDArray[np.uint16], place: int) -> list[int]:
    read: list[int] = tokens[max(place + 1 - LONGEST, 0) : place + 1].tolist()
    return read[::-1]


@pytest.mark.parametrize("vocabulary", [1, 2, 5, 300])
@pytest.mark.parametrize("length", [1, 2, 3, 31, 32, 33, 500])
def test_places_stand_in_the_order_of_their_last_tokens_read_backwards(vocabulary: int, length: int) -> None:
    tokens = np.random.default_rng(length).integers(0, vocabulary, length).astype(np.uint16)
    order = order_by_endings(tokens).tolist()
    assert sorted(order) == list(range(length))
    endings = [ending(tokens, place) for place in order]
    assert endings == sorted(endings)


def test_a_loop_is_read_up_to_the_longest_match_only() -> None:
    tokens = np.asarray([7, 8] * 100, np.uint32)
    endings = [ending(tokens, place) for place in order_by_endings(tokens).tolist()]
    assert endings == sorted(endings)


def test_the_largest_tokens_of_both_forms_are_told_apart() -> None:
    for kind, most in ((np.uint16, 2**16 - 1), (np.uint32, 2**31)):
        assert order_by_endings(np.asarray([most, 0, most - 1, most], kind)).tolist() == [1, 2, 0, 3]
