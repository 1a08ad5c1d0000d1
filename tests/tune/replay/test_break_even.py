"""Where trees beat chains: by hand, and against replays at many costs."""

from __future__ import annotations

import random

import pytest

from forerun.traces.read import Trace
from forerun.tune.replay.break_even import MOST_C, BreakEven, break_even, lower, ratios, round_totals, sentences
from forerun.tune.replay.report import best_of, fixed_lengths
from forerun.tune.replay.round_costs import constant
from forerun.tune.replay.simulate import Replay

from ..traced import by_hand
from ..trees import tree_by_hand

# the chain is always wrong and the tree right in its first level
WRONG_AND_RIGHT = tree_by_hand([(0, 1)] * 12, depth=1)


def random_trace(seed: int) -> Trace:
    dice = random.Random(seed)
    draft_points = [
        (chain, min(3, chain + dice.randint(0, 2))) for chain in (dice.choice((0, 0, 1, 2)) for _ in range(40))
    ]
    return tree_by_hand(draft_points, width=3, depth=3, left=2)


def best(trace: Trace, c: float, rows: float, branches: bool) -> float:
    found = fixed_lengths(Replay(trace, constant(c, rows), branches))
    return found[best_of(found)].speedup


def test_lines_are_compared_between_their_crossings() -> None:
    falling, flat = (1.0, -1.0), (0.5, 0.0)

    assert lower([flat], [falling], 1.0) == ((0.0, 0.5),)
    assert lower([falling], [flat], 1.0) == ((0.5, 1.0),)
    assert lower([(0.0, 1.0), (1.0, -1.0)], [(0.3, 0.0)], 1.0) == (
        (0.0, pytest.approx(0.3)),
        (pytest.approx(0.7), 1.0),
    )
    assert lower([flat, (2.0, 0.0)], [flat], 1.0) == (), "a tie"
    assert lower([(0.4, 0.0), (0.3, 0.2)], [flat], 1.0) == ((0.0, 1.0),), "stretches that touch are one"


def test_a_bill_counts_what_a_length_takes() -> None:
    # 12 tokens after the first: 6 rounds of a level of 2 nodes give 2 tokens each
    plain, one = round_totals(WRONG_AND_RIGHT, branches=True)

    assert (plain.verifications, plain.rows, plain.forwards, plain.further) == pytest.approx((12, 0, 0, 0))
    assert (one.verifications, one.rows, one.forwards, one.further) == pytest.approx((6, 12, 6, 0))
    assert one.time(0.5, 0.1) == pytest.approx(6 + 0.1 * 12 + 0.5 * 6)


def test_rows_of_the_drafters_forwards_are_counted_beyond_their_first() -> None:
    # width 2: the second level's forward has 2 rows, and one of 3 rows after it comes to nothing
    trace = tree_by_hand([(0, 0)] * 4, depth=2, left=3)
    two = round_totals(trace, branches=True)[2]
    # after tokens 1, 2 there is room for 2 levels, after token 3 for 1, after token 4 for none
    assert (two.verifications, two.rows, two.forwards) == pytest.approx((4, 4 + 4 + 2, 2 + 2 + 1))
    assert two.further == pytest.approx(1 + 1)


def test_a_forward_that_comes_to_nothing_is_paid_for_by_who_asks_for_it() -> None:
    trace = tree_by_hand([(0, 0)] * 6, depth=2, left=3)
    asking = Replay(trace, constant(1), branches=True).planned([[9] * 6])
    content = Replay(trace, constant(1), branches=True).planned([[2] * 6])

    assert asking.stats.draft_forwards > content.stats.draft_forwards
    assert 1e3 * (asking.seconds - content.seconds) == pytest.approx(
        asking.stats.draft_forwards - content.stats.draft_forwards
    )


def test_the_tree_wins_up_to_the_c_that_its_tokens_pay() -> None:
    # 12 tokens take it 6 + 6 c + 12 rows verifications, and plain decoding 12
    found = break_even(WRONG_AND_RIGHT, 0.1, 0.05)

    assert found.over_c == ((0.0, pytest.approx((12 - 6 - 0.6) / 6)),)
    assert found.over_rows == ((0.0, pytest.approx((12 - 6 - 0.6) / 12)),)


def test_a_tree_that_is_never_right_where_the_chain_is_wrong_wins_nowhere() -> None:
    trace = tree_by_hand([(1, 1)] * 12, depth=2)
    found = break_even(trace, 0.1, 0.05)

    assert (found.over_c, found.over_rows) == ((), ())
    assert sentences(found, "tree") == [
        "Where a further row costs 0.05 of a forward, the tree beats the best chain and plain decoding at no c.",
        "At c=0.1 it does at no price of a further row.",
    ]


@pytest.mark.parametrize("seed", range(4))
def test_replays_at_every_cost_say_the_same(seed: int) -> None:
    trace = random_trace(seed)
    checked = {True: 0, False: 0}
    for rows in (0.0, 0.02, 0.1, 0.3):
        over_c = break_even(trace, 0.1, rows).over_c
        for c in (0.01, 0.11, 0.23, 0.37, 0.61, 0.97):
            wins = best(trace, c, rows, True) > max(best(trace, c, rows, False), 1) + 1e-9
            assert any(low < c < high for low, high in over_c) == wins
            checked[wins] += 1
    assert min(checked.values()) > 0


def test_a_trace_of_chains_alone_has_no_answer() -> None:
    with pytest.raises(ValueError, match="holds chains alone; trace the drafter tree or graph"):
        break_even(by_hand([(1, [0.5]), (0, [])]), 0.1, 0.0)


def test_constant_costs_have_their_own_ratios() -> None:
    assert ratios(constant(0.25, 0.03), 7) == pytest.approx((0.25, 0.03))
    assert ratios(constant(0), 1) == (0, 0)


def test_stretches_are_told_in_words() -> None:
    found = BreakEven(0.2, 0.0, ((0.0, 0.25), (0.5, MOST_C)), ((0.0, 0.125),))

    assert sentences(found, "graph") == [
        "Where a further row costs 0 of a forward, the graph beats the best chain and plain decoding at c up to 0.25, and "
        "from 0.5 on.",
        "At c=0.2 it does where a further row costs up to 0.125 of a forward.",
    ]
