from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from forerun.drafters.recycling.next_tokens import NextTokens
from forerun.drafters.recycling.rank_acceptance import PRIOR, RankAcceptance

KEPT = NextTokens([7, 8, 9], [5, 2, 1], pair=True)


def likely(acceptance: RankAcceptance, depth: int = 0, kept: NextTokens = KEPT) -> dict[int, float]:
    return dict(acceptance.ranking(kept, depth))


def test_at_first_the_shares_decide_and_none_is_taken_for_sure() -> None:
    ranking = RankAcceptance().ranking(KEPT, 0)
    assert [token for token, _ in ranking] == [7, 8, 9]
    assert sum(share for _, share in ranking) < 1


def test_what_was_written_teaches_of_every_kept_token() -> None:
    acceptance, before = RankAcceptance(), likely(RankAcceptance())
    acceptance.learn(KEPT, 0, 8)
    after = likely(acceptance)
    assert after[8] == pytest.approx((1 + PRIOR * before[8]) / (1 + PRIOR))
    assert after[7] < before[7]
    assert after[9] < before[9]


def test_a_token_that_was_not_kept_teaches_that_none_was_right() -> None:
    acceptance, before = RankAcceptance(), likely(RankAcceptance())
    acceptance.learn(KEPT, 0, 99)
    assert all(value < before[token] for token, value in likely(acceptance).items())


def test_a_rank_that_turns_out_better_comes_first() -> None:
    acceptance = RankAcceptance()
    for _ in range(20):
        acceptance.learn(KEPT, 0, 9)
    ranking = acceptance.ranking(KEPT, 0)
    assert ranking[0][0] == 9
    assert ranking[0][1] > 0.8


@pytest.mark.parametrize(("kept", "depth"), [(KEPT, 1), (KEPT, 2), (NextTokens([7, 8, 9], [6, 2, 1], pair=True), 0)])
def test_depths_and_shares_are_counted_apart(kept: NextTokens, depth: int) -> None:
    acceptance = RankAcceptance()
    for _ in range(20):
        acceptance.learn(KEPT, 0, 99)
    assert likely(acceptance, depth, kept)[7] == likely(RankAcceptance(), depth, kept)[7]


def test_what_followed_one_token_and_what_followed_two_are_counted_apart() -> None:
    acceptance = RankAcceptance()
    acceptance.learn(KEPT, 0, 99)
    single = NextTokens(KEPT.tokens, KEPT.shares, pair=False)
    assert likely(acceptance, 0, single) == likely(RankAcceptance(), 0, single)


def test_great_depths_count_as_one() -> None:
    acceptance = RankAcceptance()
    acceptance.learn(KEPT, 2, 7)
    assert likely(acceptance, 9)[7] == likely(acceptance, 2)[7] > likely(RankAcceptance(), 9)[7]


def test_threads_may_share_it() -> None:
    shared, alone = RankAcceptance(), RankAcceptance()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: [shared.learn(KEPT, 0, 7) for _ in range(50)], range(4)))
    for _ in range(200):
        alone.learn(KEPT, 0, 7)
    assert likely(shared) == likely(alone)
