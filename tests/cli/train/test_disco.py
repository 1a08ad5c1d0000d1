from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.traces.read import read_trace

from ..conftest import Ran

Call = Callable[..., Ran]
SELF = ("--drafter", "self", "--exit-layer", 2)
QUICK = ("--epochs", 2, "--top", 4, "--cost", 0.2)


@pytest.fixture
def trace(forerun: Call, tiny: str, tmp_path: Path) -> Path:
    """Of three greedy answers, drafts of three tokens at each position."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"count to {index}"}) + "\n" for index in range(3)))
    options = ("--max-new-tokens", 8, "--depth", 3, "--top", 4, "--cost-prompts", 0)
    ran = forerun("trace", tiny, "--prompts", prompts, *SELF, "--output", tmp_path / "t.jsonl", *options)
    assert ran.status == 0, ran.said
    return tmp_path / "t.jsonl"


def call(forerun: Call, trace: Path, *given: Any) -> Ran:
    return forerun("train", "disco", trace, "--output", trace.parent / "out", *QUICK, *given)


def test_a_classifier_is_trained_and_stops_drafts(forerun: Call, tiny: str, trace: Path) -> None:
    ran = call(forerun, trace)

    assert ran.status == 0, ran.said
    assert "drafted tokens of 2 answers" in ran.out
    assert "held out: cross-entropy" in ran.out
    options = ("--policy", "disco", "--classifier", trace.parent / "out", "--max-new-tokens", 8)
    assert forerun("generate", tiny, "hi there", *SELF, *options).status == 0
    ran = forerun("generate", tiny, "hi", "--drafter", "self", "--exit-layer", 1, *options)
    assert (ran.status, "trained for another drafter" in ran.said) == (2, True)


def test_json_is_one_object(forerun: Call, trace: Path) -> None:
    found = json.loads(call(forerun, trace, "--json").out)

    assert (found["answers"], found["held_out"], found["cost"]) == (2, 1, 0.2)
    assert 0 < found["tau"] < 1


def test_what_was_asked_for_is_in_the_file(forerun: Call, trace: Path) -> None:
    assert call(forerun, trace, "--width", 5, "--seed", 3).status == 0

    about = json.loads((trace.parent / "out" / "classifier.json").read_text())
    assert about["pair"]["drafter"] == "self up to layer 2"
    assert (about["trained"]["recipe"]["width"], about["trained"]["recipe"]["seed"]) == (5, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--top", 9), "the trace holds 4 of the largest probabilities and 9 are to be read"),
        (("--width", 0), "width must be at least 1, got 0"),
        (("--held-out", 0), "the held-out part must be above 0 and below 1, got 0"),
    ],
)
def test_a_bad_request_is_one_sentence(forerun: Call, trace: Path, given: tuple[Any, ...], message: str) -> None:
    ran = call(forerun, trace, *given)

    assert ran.status == 2
    assert message in ran.said
    assert len(ran.said.splitlines()) == 1
    assert not (trace.parent / "out").exists()


def test_an_empty_and_a_cut_trace_are_refused(forerun: Call, trace: Path) -> None:
    content = trace.read_bytes()
    for broken, message in ((b"", "is an empty trace"), (content[:-9], "is cut off in the middle of line 4")):
        trace.write_bytes(broken)
        ran = call(forerun, trace)
        assert (ran.status, message in ran.said, len(ran.said.splitlines())) == (2, True, 1)


def test_a_trace_of_another_tokenizer_is_refused(forerun: Call, trace: Path) -> None:
    own = read_trace(trace).header.pair.target.vocabulary
    other = trace.with_name("other.jsonl")
    other.write_text(trace.read_text().replace(own, "0" * 16))
    ran = forerun("train", "disco", trace, other, "--output", trace.parent / "out", *QUICK)

    assert ran.status == 2
    assert "was traced with another model, tokenizer or drafter (vocabulary is" in ran.said
