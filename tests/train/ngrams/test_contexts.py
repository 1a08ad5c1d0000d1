"""What followed each context, against counting in dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

import numpy as np
import pytest

from forerun.models.files.ngram_keys import keys_of
from forerun.models.files.ngrams import LONGEST
from forerun.train.data.examples import Example
from forerun.train.ngrams.contexts import followers, places_of


def answers(count: int = 30, tokens: int = 4) -> list[Example]:
    chance = Random(0)
    return [Example(tuple(chance.randrange(tokens) for _ in range(20)), chance.randrange(1, 10)) for _ in range(count)]


def naive(examples: list[Example], length: int) -> dict[tuple[int, ...], Counter[int]]:
    found: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for one in examples:
        for at in range(max(one.start, length), len(one.ids)):
            found[one.ids[at - length : at]][one.ids[at]] += 1
    return found


def test_arrays_have_the_keys_that_drafting_asks_for() -> None:
    chance = Random(1)
    ids = tuple(chance.randrange(2**31) for _ in range(12))
    places = places_of([Example((9, 9), 1), Example(ids, 1)], LONGEST)
    for column, at in enumerate(range(1, len(ids)), 1):
        keys = keys_of(ids[:at], LONGEST)
        assert places.keys[: len(keys), column].tolist() == keys
        assert places.there[:, column].tolist() == [row < at for row in range(LONGEST)]


def test_only_answers_are_learnt_and_no_context_runs_into_another_text() -> None:
    places = places_of([Example((1, 2, 3), 2), Example((4, 5), 1)], 3)
    assert places.next.tolist() == [3, 5]
    assert places.there.tolist() == [[True, True], [True, False], [False, False]]


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_followers_are_those_of_a_dictionary(length: int) -> None:
    examples = answers()
    found, wanted = followers(places_of(examples, length), length), naive(examples, length)
    by_key = {keys_of(context, length)[-1]: counted for context, counted in wanted.items()}
    assert found.keys.tolist() == sorted(by_key)
    for key, token, count, total in zip(found.keys, found.tokens, found.counts, found.totals, strict=True):
        counted = by_key[int(key)]
        assert (counted[int(token)], count, total) == (max(counted.values()), max(counted.values()), counted.total())


def test_each_is_found_again_at_a_place_of_its_context() -> None:
    places = places_of(answers(), 2)
    found = followers(places, 2)
    assert np.array_equal(places.keys[1, found.place], found.keys)


def test_of_contexts_that_never_come_there_are_none() -> None:
    found = followers(places_of([Example((1, 2), 1)], 3), 3)
    assert [len(array) for array in (found.keys, found.tokens, found.counts, found.totals, found.place)] == [0] * 5
