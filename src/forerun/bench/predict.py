"""The predicted speed-up beside the measured one: the same acceptance, if only forwards took time.

The verification's cost is the calibrated curve's, after a prefix of the prompts' mean length; a drafted token's is the
drafting time that was measured. If the measured speed-up is lower, time is spent outside of forwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.cost import Cost, predicted_speedup


def add_predictions(report: dict[str, Any], target: Cost) -> None:
    """Put "predicted_speedup" into the scores of every method whose acceptance is known, overall and by category."""
    lengths = report["mean_prompt_tokens"]
    for method in report["methods"]:
        for name, scores in {"all": method, **method["categories"]}.items():
            if scores["acceptance"] and scores["acceptance"]["rounds"]:
                scores["predicted_speedup"] = round(_predicted(scores, target, lengths[name]), 4)


def _predicted(scores: Mapping[str, Any], target: Cost, prefix: float) -> float:
    told = scores["acceptance"]
    drafted = told["drafted_per_round"]
    ms = 1000 * scores["seconds"]["draft"] / told["rounds"] / drafted if drafted else 0.0
    return predicted_speedup(target, told["tokens_per_round"], drafted, ms / target.ms(1, prefix), prefix)
