"""Restricted draft vocabularies."""

from __future__ import annotations

import pytest

from forerun.drafters.vocabulary import first_ranked, frequent


def test_the_most_frequent_tokens_are_kept_in_ascending_order() -> None:
    assert frequent([7, 7, 7, 3, 3, 9], 2, 10) == (3, 7)


def test_of_equally_frequent_tokens_the_lower_id_is_kept() -> None:
    assert frequent([9, 5, 5, 9, 8], 1, 10) == (5,)


def test_a_short_text_is_filled_up_from_the_lowest_ids() -> None:
    assert frequent([7], 4, 10) == (0, 1, 2, 7)
    assert frequent([], 3, 10) == (0, 1, 2)


def test_all_tokens_may_be_kept() -> None:
    assert frequent([4, 2], 5, 5) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("size", [0, -1, 11])
def test_a_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=rf"must hold 1..10 tokens, got {size}"):
        frequent([1], size, 10)


def test_the_first_of_a_ranking_are_taken_whatever_their_numbers_are() -> None:
    assert first_ranked([9, 2, 7, 1], 3, 10) == (2, 7, 9)
    assert first_ranked([9, 2, 9, 7], 3, 10) == (2, 7, 9)
    assert first_ranked([9], 3, 10) == (0, 1, 9)
    with pytest.raises(ValueError, match=r"a draft vocabulary must hold 1..10 tokens, got 11"):
        first_ranked([1], 11, 10)
