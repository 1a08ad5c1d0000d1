from __future__ import annotations

from typing import Any

import pytest

from forerun.cli.train.tables import exits, show_report, speedups, sweet_spot, wholes


def side(*losses: float) -> dict[str, Any]:
    found = [
        {"exit_layer": layer, "loss": loss, "agreement": 0.5, "accuracy": 0.25}
        for layer, loss in enumerate(losses, start=1)
    ]
    answers = {"exact": 3, "asked": 4, "left_out": 1, "share": 0.75}
    return {"model": "m", "perplexity": 7.5, "answers": answers, "exits": found}


def test_exits_of_models_of_different_depth_stand_in_one_table() -> None:
    columns, rows = exits(side(3.0, 2.0), side(5.0, 4.0, 1.0))

    assert columns[:3] == ("exit", "loss", "loss before")
    assert rows[0] == ("1", "3.000", "5.000", "0.500", "0.500", "0.250", "0.250")
    assert rows[2] == ("3", "", "1.000", "", "0.500", "", "0.250")


def test_the_whole_models_are_compared_by_what_training_may_cost() -> None:
    assert wholes([side(1.0)])[1] == [("m", "7.500", "3 of 4", "1")]


def place(exit_layer: int, length: int, speedup: float) -> dict[str, Any]:
    return {
        "exit_layer": exit_layer,
        "length": length,
        "speedup": speedup,
        "predicted_speedup": speedup + 0.1,
        "draft_cost": 0.25,
        "acceptance_per_position": (0.9, 0.8)[:length],
        "tokens_per_round": 2.5,
        "equal": 3,
        "prompts": 4,
    }


def test_speedups_stand_by_exit_and_draft_length() -> None:
    found = [place(8, 1, 1.1), place(8, 2, 1.4), place(4, 1, 0.9), place(4, 2, 1.2)]
    columns, rows = speedups(found)

    assert columns == ("exit", "c", "1", "2", "acceptance by position")
    assert rows == [("4", "0.25", "0.90", "1.20", "0.90 0.80"), ("8", "0.25", "1.10", "1.40", "0.90 0.80")]
    told = sweet_spot(found)
    assert told.startswith("Best: exit 8, 2 drafted tokens: 1.40 x plain decoding (predicted 1.50)")
    assert "12 of 16 texts equal" in told


@pytest.mark.parametrize(("before", "places"), [(None, []), (side(5.0, 4.0), [place(1, 2, 1.3)])])
def test_what_was_not_measured_has_no_table(
    before: dict[str, Any] | None, places: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    conditions = {"model": "m", "weights": "int4", "runner": "LeanRunner", "hardware": "abacus", "threads": 2}
    data = {"examples": 7, "learnt_tokens": 55, "timed": len(places)}
    show_report(
        {**conditions, "data": data, "max_new_tokens": 9, "quality": side(3.0, 2.0), "before": before, "places": places}
    )
    out = capsys.readouterr().out

    assert "7 examples, 55 learnt tokens" in out
    assert "m, int4, LeanRunner, abacus, 2 threads" in out
    assert ("loss before" in out) == (before is not None)
    assert ("Speed-up" in out) == ("Best: exit 1" in out) == bool(places)
