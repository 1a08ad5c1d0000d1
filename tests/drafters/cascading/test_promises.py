from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forerun.drafters.cascading.promises import OUTLIER, Promises

GUESS = (2.0, 1.25)


def taught(**rounds: tuple[int, int, float]) -> Promises:
    """kind -> (rounds, tokens, seconds) after a plain round of one second."""
    promises = Promises()
    promises.learn_plain(1.0)
    for kind, (count, tokens, seconds) in rounds.items():
        for _ in range(count):
            promises.learn((kind,), tokens, seconds)
    return promises


def test_before_anything_was_seen_a_kind_promises_what_is_guessed() -> None:
    assert Promises().of(("a",), GUESS) == 0.75
    assert Promises().of((), GUESS) == 0.75
    assert Promises().of_plain == 0.0


def test_a_guess_is_soon_overruled() -> None:
    assert taught(a=(10, 1, 2.0)).of(("a",), GUESS) < -0.6


def test_a_kind_promises_its_tokens_less_the_price_of_its_time() -> None:
    promises = taught(a=(300, 3, 1.5))
    assert promises.price == pytest.approx(2.0, abs=0.05)
    assert promises.of(("a",), GUESS) == pytest.approx(3 - 2.0 * 1.5, abs=0.1)
    assert promises.of_plain == pytest.approx(-1.0, abs=0.05)


def test_time_has_no_lower_price_than_plain_decoding_gives_for_it() -> None:
    assert taught(a=(300, 1, 3.0)).price == 1.0


def test_a_cheap_draft_is_worth_less_than_a_long_one_where_time_is_dear() -> None:
    """2 tokens in 1.1 rounds beat 3 tokens in 2 by their ratio and by their promise, but 5 tokens in 2.6 do not give way."""
    promises = taught(short=(200, 2, 1.1), long=(200, 5, 2.6))
    assert promises.of(("long",), GUESS) > promises.of(("short",), GUESS)


def test_a_special_kind_begins_with_what_the_general_one_promises() -> None:
    promises = taught(a=(100, 1, 2.0))
    assert promises.of(("a", "a followed"), GUESS) == promises.of(("a",), GUESS) < 0
    for _ in range(60):
        promises.learn(("b", "b followed"), 4, 1.2)
        promises.learn(("b", "b refused"), 1, 1.2)
    followed, general, refused = (
        promises.of(kinds, GUESS) for kinds in (("b", "b followed"), ("b",), ("b", "b refused"))
    )
    assert followed > general > refused


def test_time_is_counted_in_plain_rounds_once_one_was_seen() -> None:
    promises = Promises()
    promises.learn(("a",), 9, 1.0)
    assert promises.of(("a",), GUESS) == 0.75
    promises.learn_plain(1.0)
    promises.learn(("a",), 9, 1.0)
    assert promises.of(("a",), GUESS) > 0.75


def test_plain_rounds_that_take_no_time_teach_nothing() -> None:
    promises = Promises()
    promises.learn_plain(0.0)
    promises.learn(("a",), 2, 1.0)
    assert promises.of(("a",), GUESS) == Promises().of(("a",), GUESS)


def test_what_is_new_counts_more() -> None:
    promises = taught(a=(300, 1, 1.0))
    for _ in range(900):
        promises.learn(("a",), 4, 1.0)
    assert promises.of(("a",), GUESS) + promises.price > 3.8


@pytest.mark.parametrize("plain", [False, True])
def test_a_round_that_was_interrupted_counts_as_a_slow_one(plain: bool) -> None:
    promises, spared = taught(a=(50, 2, 1.0)), taught(a=(50, 2, 1.0))
    if plain:
        promises.learn_plain(1000.0)
        spared.learn_plain(OUTLIER)
    else:
        promises.learn(("a",), 2, 1000.0)
        spared.learn(("a",), 2, OUTLIER)
    assert promises.of(("a",), GUESS) == spared.of(("a",), GUESS)


def test_reading_costs_what_it_took_beyond_a_draft() -> None:
    promises = taught(a=(50, 2, 1.5))
    before = promises.of_reading("a", 100)
    for _ in range(20):
        promises.learn_reading("a", 100, ("a",), GUESS, 21.5)
    assert promises.of_reading("a", 100) == pytest.approx(20 * promises.price, rel=0.1)
    assert promises.of_reading("a", 100) > before > 0
    assert promises.of_reading("a", 0) == 0
    assert promises.of_reading("b", 100) == before


def test_what_was_kept_goes_on_where_it_ended() -> None:
    promises = taught(a=(50, 2, 1.5), b=(20, 1, 2.0))
    promises.learn_reading("a", 100, ("a",), GUESS, 21.5)
    kept = Promises()
    kept.recall(json.loads(json.dumps(promises.as_data())))
    for one in (promises, kept):
        one.learn_plain(1.0)
    assert [kept.of((kind,), GUESS) for kind in "abc"] == [promises.of((kind,), GUESS) for kind in "abc"]
    assert kept.of_reading("a", 9) == promises.of_reading("a", 9)


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        {},
        {"all": [1, 1], "kinds": {}},
        {"all": [1], "kinds": {}, "read": {}},
        {"all": [1, "2"], "kinds": {}, "read": {}},
        {"all": [1, 1], "kinds": {"a": [1, 2]}, "read": {}},
        {"all": [1, 1], "kinds": {"a": [1, 2, -3]}, "read": {}},
        {"all": [1, 1], "kinds": {"a": [1, 2, float("nan")]}, "read": {}},
        {"all": [1, 1], "kinds": {}, "read": {"a": [1, True]}},
    ],
)
def test_what_is_damaged_is_refused_and_changes_nothing(damaged: Any) -> None:
    promises = taught(a=(5, 2, 1.5))
    before = promises.as_data()
    with pytest.raises(ValueError, match=r"no promises were kept|to be kept|a kept number"):
        promises.recall(damaged)
    assert promises.as_data() == before


def test_threads_lose_no_round() -> None:
    shared, alone = taught(), taught()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: [shared.learn(("a",), 2, 1.0) for _ in range(50)], range(4)))
    for _ in range(200):
        alone.learn(("a",), 2, 1.0)
    assert shared.of(("a",), GUESS) == alone.of(("a",), GUESS)
