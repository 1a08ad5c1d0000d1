from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from forerun.drafters.promises import Promises


def test_before_anything_was_seen_a_kind_promises_what_is_guessed() -> None:
    promises = Promises()
    assert promises.of("a", 1.5) == 1.5
    assert promises.of("b", 2.0) == 2.0


def test_a_guess_is_soon_overruled() -> None:
    promises = Promises()
    promises.learn_plain(1.0)
    for _ in range(10):
        promises.learn("a", 1, 2.0)
    assert promises.of("a", 3.0) < 0.9


def test_a_kind_promises_the_tokens_that_it_gave_for_its_time() -> None:
    promises = Promises()
    promises.learn_plain(0.5)
    for _ in range(300):
        promises.learn("a", 3, 1.0)
    assert promises.of("a", 1.5) == pytest.approx(1.5, abs=0.05)
    for _ in range(300):
        promises.learn("b", 3, 0.5)
    assert promises.of("b", 1.5) == pytest.approx(3.0, abs=0.1)
    assert promises.of("a", 1.5) == pytest.approx(1.5, abs=0.05)


def test_time_is_counted_in_plain_rounds_once_one_was_seen() -> None:
    promises = Promises()
    promises.learn("a", 9, 1.0)
    assert promises.of("a", 1.5) == 1.5
    promises.learn_plain(1.0)
    promises.learn("a", 9, 1.0)
    assert promises.of("a", 1.5) > 3


def test_plain_rounds_that_take_no_time_teach_nothing() -> None:
    promises = Promises()
    promises.learn_plain(0.0)
    promises.learn("a", 2, 1.0)
    assert promises.of("a", 1.5) == 1.5


def test_what_is_new_counts_more() -> None:
    promises = Promises()
    promises.learn_plain(1.0)
    for tokens in [1] * 300 + [4] * 300:
        promises.learn("a", tokens, 1.0)
    assert promises.of("a", 1.5) > 3.8


def test_threads_lose_no_round() -> None:
    shared, alone = Promises(), Promises()
    for promises in (shared, alone):
        promises.learn_plain(1.0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: [shared.learn("a", 2, 1.0) for _ in range(50)], range(4)))
    for _ in range(200):
        alone.learn("a", 2, 1.0)
    assert shared.of("a", 1.5) == alone.of("a", 1.5)
