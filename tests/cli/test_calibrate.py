from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.cli.calibrate import advice, break_even, curves
from forerun.core.cost import Cost, Costs, Point
from forerun.testing import save_tiny

from .conftest import Ran

Call = Callable[..., Ran]


def cost(plan: str, *points: tuple[int, int, float]) -> Cost:
    return Cost("m", "HFRunner", "bf16", plan, tuple(Point(rows, prefix, ms, 0.5) for rows, prefix, ms in points))


COSTS = Costs(
    (
        cost("full", (1, 64, 10.0), (2, 64, 8.0), (8, 64, 20.0), (1, 900, 30.0)),
        cost("exit 3", (1, 64, 5.0), (2, 64, 6.0)),
    )
)


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("forerun.bench.calibrate.ROWS", (1, 2, 4))


def test_a_calibration_shows_the_curve_and_what_pays(forerun: Call, tiny: str) -> None:
    ran = forerun("calibrate", tiny, "--exit-layer", 2)
    assert ran.status == 0
    for shown in ("prefix 64", "exit 2", "without a forward (lookup)", "threads"):
        assert shown in ran.out
    assert "measured now" in ran.err


def test_the_second_call_measures_nothing(forerun: Call, tiny: str) -> None:
    first = forerun("calibrate", tiny)
    second = forerun("calibrate", tiny)
    assert "measured before; --refresh measures again" in second.err
    assert second.out == first.out


def test_a_refresh_measures_again(forerun: Call, tiny: str) -> None:
    forerun("calibrate", tiny)
    assert "measured now" in forerun("calibrate", tiny, "--refresh").err


def test_the_costs_come_as_json_with_their_conditions(forerun: Call, tiny: str) -> None:
    ran = forerun("calibrate", tiny, "--exit-layer", 1, "--exit-layer", 2, "--skip-attention", "1,2", "--json")
    told = json.loads(ran.out)
    assert [one["plan"] for one in told["costs"]] == ["full", "exit 1", "exit 2", "skip attention 1,2"]
    assert {"rows", "prefix", "ms", "spread"} == set(told["costs"][0]["points"][0])
    assert {"hardware", "threads", "versions"} <= set(told)


def test_a_draft_model_is_measured_too(forerun: Call, tiny: str, tmp_path: Path) -> None:
    small = save_tiny(tmp_path / "small", num_hidden_layers=2)
    told = json.loads(forerun("calibrate", tiny, "--draft-model", small, "--json").out)
    assert [one["model"] for one in told["costs"]] == ["tiny", "small"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--exit-layer", "9"), "exit_layer must be in 1..3"),
        (("--skip-attention", "7"), "a skipped layer must be in 0..3, got 7"),
        (("--skip-mlp", "a"), "--skip-mlp takes whole numbers with commas"),
    ],
)
def test_a_plan_that_is_none_is_refused(forerun: Call, tiny: str, given: tuple[str, ...], sentence: str) -> None:
    ran = forerun("calibrate", tiny, *given)
    assert ran.status == 2
    assert sentence in ran.err


def test_the_table_has_a_column_for_each_cost_and_prefix() -> None:
    columns, rows = curves(COSTS)
    assert columns == (
        "rows",
        "m bf16 full, prefix 64",
        "m bf16 full, prefix 900",
        "m bf16 exit 3, prefix 64",
    )
    assert rows[0] == ("1", "10.00 (0.50)", "30.00 (0.50)", "5.00 (0.50)")
    assert rows[2] == ("8", "20.00 (0.50)", "", "")


def test_speculation_pays_from_k_c_plus_the_verification_on() -> None:
    columns, rows = break_even(COSTS)
    lookup, exit3 = (dict(zip(columns, row, strict=True)) for row in rows)
    assert (lookup["c"], exit3["c"]) == ("0.00", "0.50")
    assert lookup["7"] == "2.00"
    assert exit3["7"] == f"{7 * 0.5 + 2:.2f}"


def test_padding_is_advised_where_it_is_faster() -> None:
    assert advice(COSTS) == ["m bf16 full: a one-row forward runs as 2 rows, 8.00 ms for 10.00."]
