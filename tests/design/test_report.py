"""What a design says in the end, as numbers and in sentences."""

from __future__ import annotations

import json
import shlex

from forerun.design.report import report_of, sentences

from .designed import TARGET, designed, trained, untrained

SHAPES = (untrained(4, 1.25), untrained(1, 1.1), untrained(8, 0.9))


def test_the_report_is_json_with_all_that_was_measured() -> None:
    told = json.loads(json.dumps(report_of(designed(SHAPES), "smollm2", "answers.jsonl", TARGET)))
    assert told["target"]["step_ms"] == 10.0
    assert told["target"]["verify_ms"] == {"1": 10.0, "4": 12.0}
    assert told["overhead_ms"] == {"round": 0.4, "drafted": 0.1, "emitted": 0.05}
    assert [one["layers"] for one in told["shapes"]] == [4, 1, 8]
    first = told["shapes"][0]
    assert first["first_ms"] == {"1": 4.1, "4": 4.4}
    assert first["later_ms"] == 4.0
    assert first["needed_to_break_even"] == 0.31
    assert first["needed_for_goal"] is None
    assert told["depth_and_width"]["rows"][0]["ms"] == 4.0
    assert told["summary"]


def test_the_fastest_shape_is_recommended_with_what_it_needs_and_how_to_train_it() -> None:
    told = report_of(designed(SHAPES), "smollm2", "my answers.jsonl", TARGET)["recommended"]
    assert told["pays"]
    name = "layers=4,width=576,mlp=1536,heads=9,kv_heads=3,vocabulary=8192"
    assert shlex.split(told["command"]) == [
        *("forerun", "train", "draft", "smollm2", "--shape", name, "--data", "my answers.jsonl", "-o", "draft")
    ]
    (said,) = [one for one in sentences(designed(SHAPES)) if one.startswith("Recommended")]
    assert said == (
        f"Recommended: {name}: 31.3 M parameters, 30 MB; at the estimated 0.55 it gives 1.25 x plain decoding with drafts "
        "of 3; breaking even takes an acceptance of 0.31, 1.3 x is out of reach."
    )


def test_where_no_shape_pays_that_is_said() -> None:
    slow = designed((untrained(8, 0.9),))
    assert sentences(slow)[-1].startswith("No shape is predicted to beat plain decoding here. The nearest is layers=8")
    told = report_of(slow, "smollm2", "answers.jsonl", TARGET)["recommended"]
    assert told["pays"] is False


def test_an_assumption_is_never_told_as_a_measurement() -> None:
    (said,) = [one for one in sentences(designed(SHAPES)) if "Acceptance of untrained shapes" in one]
    assert "assumed, not measured" in said


def test_depth_against_width_comes_first() -> None:
    assert sentences(designed(SHAPES))[0].startswith("This machine charges for ")


def test_candidates_are_ranked_by_throughput_whatever_their_perplexity() -> None:
    found = designed(candidates=(trained("quick", 120, 30.0), trained("clever", 100, 9.0)))
    assert sentences(found) == [
        "Candidates are ranked by predicted throughput, not by perplexity: clever has the lowest perplexity, quick is the "
        "fastest."
    ]
    agreed = designed(candidates=(trained("both", 120, 9.0), trained("none", 100, 30.0)))
    assert sentences(agreed)[0].endswith("here the fastest is also the one with the lowest perplexity.")


def test_one_candidate_alone_is_compared_with_none() -> None:
    (said,) = sentences(designed(candidates=(trained("only", 120, None),)))
    assert said == "Candidates are ranked by predicted throughput, not by perplexity."


def test_without_shapes_nothing_is_recommended() -> None:
    told = report_of(designed(candidates=(trained("only", 120, 7.0),)), "smollm2", "answers.jsonl", TARGET)
    assert told["recommended"] is None
    assert told["depth_and_width"] is None
    assert told["candidates"][0]["name"] == "only"
    assert told["candidates"][0]["acceptance"] == 0.5
