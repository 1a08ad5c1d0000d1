from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from forerun.drafters.recycling.best_tokens import MOST
from forerun.drafters.recycling.next_tokens import NO_TOKEN, SHARES, NextTokens, NextTokenTable

FEW = [(7, 0.7), (8, 0.3)]


def table(pairs: int = 64) -> NextTokenTable:
    return NextTokenTable(50, pairs)


def test_nothing_is_known_at_first() -> None:
    assert table().find(1, 2) is None
    assert table().find(NO_TOKEN, 0) is None


def test_what_followed_both_tokens_is_found_before_what_followed_the_last_one() -> None:
    kept = table()
    kept.put(1, 2, FEW)
    kept.put(3, 2, [(9, 1.0)])
    assert kept.find(1, 2) == NextTokens([7, 8], [int(0.7 * SHARES), int(0.3 * SHARES)], pair=True)
    assert kept.find(3, 2) == NextTokens([9], [SHARES - 1], pair=True)
    assert kept.find(4, 2) == NextTokens([9], [SHARES - 1], pair=False)


def test_the_newest_stays() -> None:
    kept = table()
    full = [(token, 1 / MOST) for token in range(MOST)]
    kept.put(1, 2, full)
    assert kept.find(1, 2) == NextTokens(list(range(MOST)), [1] * MOST, pair=True)
    kept.put(1, 2, FEW)
    assert kept.find(1, 2) == NextTokens([7, 8], [5, 2], pair=True)


def test_without_pairs_the_last_token_decides() -> None:
    kept = table(pairs=0)
    kept.put(1, 2, FEW)
    assert kept.find(1, 2) == kept.find(9, 2) == NextTokens([7, 8], [5, 2], pair=False)


def test_pairs_take_each_others_places_and_are_never_taken_for_each_other() -> None:
    kept = table(pairs=1)
    kept.put(1, 2, FEW)
    kept.put(3, 4, [(9, 1.0)])
    assert kept.find(1, 2) == NextTokens([7, 8], [5, 2], pair=False)
    assert kept.find(3, 4) == NextTokens([9], [SHARES - 1], pair=True)


def test_the_first_token_of_a_text_has_none_before_it() -> None:
    kept = table()
    kept.put(NO_TOKEN, 2, FEW)
    assert kept.find(NO_TOKEN, 2) == NextTokens([7, 8], [5, 2], pair=True)


def test_threads_may_share_it() -> None:
    kept = table(pairs=8)

    def work(number: int) -> bool:
        for turn in range(200):
            kept.put(turn % 5, number, [(number, 0.6), (number + 10, 0.4)])
        found = kept.find(99, number)
        return found is not None and found.tokens == [number, number + 10]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
