from typing import Any

import pytest

from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.values import ROOT, Context, Step
from forerun.drafters.base import DRAFTERS

BUILD = DRAFTERS.entry("lookup").build


def lookup(**options: Any) -> Drafter:
    return BUILD(None, **options)(None)


def drafted(drafter: Drafter, ids: list[int]) -> list[int]:
    return [step.tokens[0] for step in drive(drafter.draft(Context(ids, Seeded(0))))]


def test_what_followed_the_same_tokens_follows_again() -> None:
    assert drafted(lookup(), [1, 2, 3, 4, 5, 1, 2, 3]) == [4, 5, 1, 2, 3]


def test_the_longest_match_wins_over_a_later_one() -> None:
    assert drafted(lookup(), [1, 2, 3, 50, 9, 3, 60, 1, 2, 3]) == [50, 9, 3, 60, 1, 2, 3]


def test_of_equally_long_matches_the_latest_wins() -> None:
    assert drafted(lookup(), [1, 2, 50, 1, 2, 60, 1, 2]) == [60, 1, 2]


def test_the_longest_ngram_counts_up_to_max_ngram_only() -> None:
    ids = [1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3]
    assert drafted(lookup(max_ngram=3), ids)[0] == 50
    assert drafted(lookup(max_ngram=2), ids)[0] == 60


def test_a_match_shorter_than_min_ngram_is_none() -> None:
    ids = [7, 1, 50, 8, 1]
    assert drafted(lookup(min_ngram=1), ids) == [50, 8, 1]
    assert drafted(lookup(min_ngram=2), ids) == []


def test_the_last_token_is_no_match_for_itself() -> None:
    assert drafted(lookup(), [1, 2, 3]) == []
    assert drafted(lookup(), [4]) == []


def test_a_run_of_one_token_drafts_one_more() -> None:
    assert drafted(lookup(), [5, 5, 5]) == [5]


def test_the_index_grows_with_the_text() -> None:
    drafter = lookup()
    ids = [1, 2, 3]
    assert drafted(drafter, ids) == []
    ids += [1, 2]
    assert drafted(drafter, ids) == [3, 1, 2]
    ids += [9, 1, 2]
    assert drafted(drafter, ids) == [9, 1, 2]


def test_a_text_indexed_bit_by_bit_drafts_as_one_indexed_at_once() -> None:
    text = [int(digit) for digit in "31415926535897932384626433832795028841971693993751"]
    slow = lookup()
    for end in range(1, len(text) + 1):
        assert drafted(slow, text[:end]) == drafted(lookup(), text[:end])


def test_each_token_is_indexed_once() -> None:
    class Counting(list[int]):
        read = 0

        def __getitem__(self, key: Any) -> Any:
            Counting.read += 1
            return super().__getitem__(key)

    drafter, ids = lookup(), Counting(range(200))
    drafted(drafter, ids)
    first = Counting.read
    ids.append(500)
    drafted(drafter, ids)
    assert Counting.read - first < 10 < first


def test_tokens_are_chosen_and_chained() -> None:
    steps = list(drive(lookup().draft(Context([1, 2, 1], Seeded(0)))))
    assert [(step.tokens, step.parents, step.laws) for step in steps] == [
        ((2,), (ROOT,), (None,)),
        ((1,), (0,), (None,)),
    ]
    assert all(isinstance(step, Step) and step.logits is None for step in steps)


@pytest.mark.parametrize(("low", "high"), [(0, 3), (4, 3), (-1, -1)])
def test_sizes_that_make_no_range_are_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match=rf"1..max_ngram, got min_ngram {low} and max_ngram {high}"):
        lookup(min_ngram=low, max_ngram=high)
