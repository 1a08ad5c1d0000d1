from typing import Any

import pytest

from forerun.bench.predict import add_predictions
from forerun.core.cost import Cost, Point

TARGET = Cost(
    "m", "HFRunner", "bf16", "full", tuple(Point(rows, prefix, 10.0 + prefix) for rows in (1, 8) for prefix in (0, 10))
)


def scores(tokens_per_round: float, drafted: float, draft_seconds: float, rounds: int = 10) -> dict[str, Any]:
    told = {"tokens_per_round": tokens_per_round, "drafted_per_round": drafted, "rounds": rounds}
    return {"acceptance": told, "seconds": {"draft": draft_seconds}}


def report(overall: dict[str, Any], category: dict[str, Any]) -> dict[str, Any]:
    lengths = {"all": 0, "qa": 10}
    return {"mean_prompt_tokens": lengths, "methods": [{**overall, "categories": {"qa": category}}]}


def test_without_a_cost_of_drafting_the_tokens_per_round_are_what_is_gained() -> None:
    told = report(scores(3, 4, 0.0), scores(2, 4, 0.0))
    add_predictions(told, TARGET)
    assert told["methods"][0]["predicted_speedup"] == 3
    assert told["methods"][0]["categories"]["qa"]["predicted_speedup"] == 2


def test_the_measured_time_of_drafting_counts() -> None:
    told = report(scores(3, 4, draft_seconds=0.1), scores(3, 4, draft_seconds=0.1))
    add_predictions(told, TARGET)
    assert told["methods"][0]["predicted_speedup"] == pytest.approx(3 / (10 / 10 + 1))
    assert told["methods"][0]["categories"]["qa"]["predicted_speedup"] == pytest.approx(3 / (10 / 20 + 1))


def test_plain_decoding_is_predicted_to_gain_nothing() -> None:
    told = report(scores(1, 0, 0.0), scores(1, 0, 0.0))
    add_predictions(told, TARGET)
    assert told["methods"][0]["predicted_speedup"] == 1


def test_a_peer_and_an_answer_of_one_token_get_no_prediction() -> None:
    told = report({"acceptance": None, "seconds": None}, scores(0, 0, 0.0, rounds=0))
    add_predictions(told, TARGET)
    assert "predicted_speedup" not in told["methods"][0]
    assert "predicted_speedup" not in told["methods"][0]["categories"]["qa"]
