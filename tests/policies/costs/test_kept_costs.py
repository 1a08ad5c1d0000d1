from __future__ import annotations

import json
from typing import Any

import pytest

from forerun.core.values import Draft, Round, Timing, Verdict
from forerun.policies.costs.kept_costs import NOTHING, KeptCosts
from forerun.policies.costs.step_costs import MeasuredStepCosts

KEPT = KeptCosts({1: 1.0, 2: 1.2, 5: 1.8}, {("", True): 0.1, ("suffix", False): 0.01}, 0.01)


def measured(kept: Any = None, unit: float = 1.0, rows: dict[int, int] | None = None) -> MeasuredStepCosts:
    """After so many rounds of these rows, as a machine takes them whose verification of one row takes `unit`."""
    costs = MeasuredStepCosts()
    if kept is not None:
        costs.recall(json.loads(json.dumps(kept)))
    for count, times in (rows or {}).items():
        draft = Draft((7,) * (count - 1), tuple(range(-1, count - 2)), (None,) * (count - 1))
        timing = Timing(draft=0.1 * unit * (count - 1), forward=unit * (0.8 + 0.2 * count))
        for _ in range(times):
            costs.learn(True, count - 1, Round((7,), draft, Verdict((), (7,)), 3, timing=timing))
    return costs


def test_row_counts_that_were_not_kept_lie_on_a_line_through_the_others() -> None:
    assert KEPT.at(2) == 1.2
    assert 1.2 < KEPT.at(3) < 1.8 < KEPT.at(8)
    assert NOTHING.at(4) == 1.0


def test_what_was_kept_is_what_is_expected_before_anything_is_measured() -> None:
    costs = measured(KEPT.as_data())
    assert [costs.verify(rows) for rows in (1, 2, 5)] == [1.0, 1.2, 1.8]
    assert (costs.step(True), costs.read(100)) == (0.1, 0.1 + 1.0)


@pytest.mark.parametrize("unit", [0.001, 3.0])
def test_a_machine_that_is_slower_now_takes_the_same_ratios(unit: float) -> None:
    costs = measured(KEPT.as_data(), unit, {1: 5})
    assert costs.verify(5) / costs.verify(1) == pytest.approx(1.8)
    assert costs.step(True) / costs.verify(1) == pytest.approx(0.1)


def test_rounds_of_other_lengths_tell_the_unit_too() -> None:
    costs = measured(KEPT.as_data(), 3.0, {5: 5})
    assert costs.verify(1) == pytest.approx(3.0)
    assert costs.verify(2) == pytest.approx(3.6)


def test_what_is_measured_now_counts_more_and_more() -> None:
    far = KeptCosts({1: 1.0, 5: 9.0}).as_data()
    first, later = measured(far, 1.0, {1: 5, 5: 2}), measured(far, 1.0, {1: 5, 5: 32})
    assert 1.8 < later.verify(5) < 3.5 < first.verify(5) < 9.0


def test_what_is_kept_of_a_start_is_what_it_measured_or_was_told() -> None:
    costs = measured(None, 2.0, {1: 20, 3: 20})
    kept = KeptCosts.from_data(costs.as_data())
    assert kept.verify[1] == 1.0
    assert kept.verify[3] == pytest.approx(1.4, abs=0.05)
    assert kept.step["", True] == pytest.approx(0.1, abs=0.01)
    assert KeptCosts.from_data(measured(KEPT.as_data()).as_data()) == KEPT
    assert {1, 2, 3, 5} <= KeptCosts.from_data(measured(KEPT.as_data(), 1.0, {3: 2}).as_data()).verify.keys()


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"verify": {}, "step": [], "read": None},
        {"verify": [[1]], "step": [], "read": None},
        {"verify": [[0, 1.0]], "step": [], "read": None},
        {"verify": [[1, 0.0]], "step": [], "read": None},
        {"verify": [], "step": [["", 1, "x"]], "read": None},
        {"verify": [], "step": [[1, 0.1]], "read": None},
        {"verify": [], "step": [[]], "read": None},
        {"verify": [], "step": [], "read": "x"},
    ],
)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="kept"):
        KeptCosts.from_data(data)
