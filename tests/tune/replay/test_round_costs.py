"""What rounds cost: in the literature's units, and measured on real rounds."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.core.cost import Cost, Costs, Point
from forerun.core.values import Signals, Step
from forerun.tune.replay.round_costs import calibrated, constant, costs_of, count_answers, lengths, measure, spread_out

from ..traced import PROMPTS, by_hand, engine_with
from ..trees import WIDE, branching, tree_by_hand

ABOUT = ("tiny", "HFRunner", "float32")
COSTS = Costs(
    (
        Cost(*ABOUT, "full", (Point(1, 8, 2.0),)),
        Cost(*ABOUT, "draft self", (Point(1, 8, 0.5),)),
        Cost(*ABOUT, "read self", (Point(9, 0, 3.0),)),
    )
)


def test_under_constant_costs_rows_are_free_and_drafted_tokens_cost_c() -> None:
    costs = constant(0.1)

    assert (costs.verify_ms(1, 5), costs.verify_ms(13, 500)) == (1, 1)
    assert [costs.draft_ms(steps, 5) for steps in (0, 1, 3, 12)] == pytest.approx([0, 0.1, 0.3, 1.2])
    assert (costs.read_ms(300), constant(0).draft_ms(12, 5)) == (0, 0)
    assert (costs.name, costs.real) == ("c=0.1", False)


def test_a_price_of_a_row_is_the_same_share_of_either_models_forward() -> None:
    costs = constant(0.1, rows=0.05)

    assert [costs.verify_ms(rows, 5) for rows in (1, 2, 5)] == pytest.approx([1, 1.05, 1.2])
    assert costs.forwards([1, 3, 5]) == pytest.approx(1 + 1.1 + 1.2)
    assert costs.draft_ms(costs.forwards([3]), 0) == pytest.approx(0.11)
    assert (costs.name, constant(0.1).forwards([1, 3, 5])) == ("c=0.1 rows=0.05", 3)
    assert costs_of("c=0.2 rows=0.5", by_hand([(0, [])])) == constant(0.2, 0.5)


@pytest.mark.parametrize(
    "name",
    [
        "rows=0.1",
        "c=0.1 rows=-1",
        "c=0.1 rows=",
        "c=0.1 c=0.2",
        "c=0.1 depth=2",
        "c=0.1 0.2",
        "c=-1",
        "c=",
        "c=a",
        "c=inf",
        "c=nan",
        "0.1",
        "measured",
        "",
    ],
)
def test_costs_that_nobody_knows_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="costs must be calibrated, or c= and a number"):
        costs_of(name, by_hand([(0, [])]))


def test_a_traces_own_costs_are_taken_by_name() -> None:
    costs = costs_of("calibrated", by_hand([(1, [0.5]), (0, [])], costs=COSTS))

    assert (costs.verify_ms(1, 8), costs.draft_ms(1, 8), costs.read_ms(9), costs.real) == (2, 0.5, 3, True)
    assert costs_of("c=0.2", by_hand([(0, [])])).draft_ms(1, 0) == 0.2


def test_a_trace_without_costs_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"hand\.jsonl holds no measured costs: take c=0.1"):
        calibrated(by_hand([(0, [])]))


def test_steps_without_a_law_are_free_only_beside_others_that_have_one() -> None:
    lookup = Step((1,), (-1,), (None,))
    drawn = Step((1,), (-1,), (None,), signals=Signals(0.5, 0.5, 0.5))

    assert [constant(0.1).pays(step) for step in (lookup, drawn)] == [False, True]
    assert calibrated(by_hand([(0, [])], costs=COSTS)).pays(lookup)


@pytest.mark.parametrize("drafter", ["self", "draft_model", "lookup"])
def test_rounds_are_measured_by_rows_steps_and_prompt(drafter: str) -> None:
    engine, ticks = engine_with(drafter), []
    costs = measure(engine, drafter, PROMPTS[:2], 4, weights="float32", max_new_tokens=12, tick=lambda: ticks.append(1))
    by_plan = {cost.plan: cost for cost in costs.costs}

    assert len(ticks) == count_answers(2, 4) == 2 * 5 * 2
    assert list(by_plan)[:2] == ["full", f"draft {drafter}"]
    assert 1 in costs.target.rows
    assert set(costs.target.rows) <= {1, 2, 3, 4, 5}
    assert costs.target.prefixes == (4 + 6, 8 + 6)
    assert set(by_plan[f"draft {drafter}"].rows) <= {1, 2, 3, 4}
    if drafter != "lookup":  # which seldom finds as much
        assert 5 in costs.target.rows
        assert by_plan[f"read {drafter}"].rows == (4, 8)
        assert by_plan[f"draft {drafter}"].ms(4) > by_plan[f"draft {drafter}"].ms(1)


def test_of_a_drafter_that_branches_chains_and_trees_are_measured() -> None:
    ticks: list[int] = []
    engine = branching(of="self", **WIDE)
    options: dict[str, Any] = {"weights": "float32", "max_new_tokens": 12, "tick": lambda: ticks.append(1)}
    costs = measure(engine, "tree", PROMPTS[:2], 3, **options)
    by_plan = {cost.plan: cost for cost in costs.costs}

    assert list(by_plan) == ["full", "draft tree", "read tree", "branched tree"]
    assert len(ticks) == count_answers(2, 3)
    assert set(by_plan["branched tree"].rows) <= {1, 2, 3, 4}
    assert max(costs.target.rows) > 4, "trees are verified with more rows than chains of the same depth"
    chain, tree = (calibrated(tree_by_hand([(1, 1)], costs=costs), branches) for branches in (False, True))
    assert (chain.draft, tree.draft) == (by_plan["draft tree"], by_plan["branched tree"])
    assert tree.forwards([4, 7]) == 2


def test_lengths_reach_to_the_depth_and_not_beyond() -> None:
    assert lengths(12) == [0, 1, 2, 3, 4, 6, 8, 12]
    assert lengths(5) == [0, 1, 2, 3, 4, 5]


def test_prompts_to_measure_on_are_spread_from_the_shortest_to_the_longest() -> None:
    prompts = [(1,) * length for length in (5, 1, 9, 7, 3)]

    assert list(map(len, spread_out(prompts, 3))) == [1, 5, 9]
    assert list(map(len, spread_out(prompts, 1))) == [1]
    assert list(map(len, spread_out(prompts, 9))) == [1, 3, 5, 7, 9]
