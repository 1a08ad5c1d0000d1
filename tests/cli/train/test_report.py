from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from forerun.testing import save_tiny

from ..conftest import Ran

Call = Callable[..., Ran]
SHORT = ("--timed", "2", "--max-new-tokens", "9", "--lengths", "2,1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "held-out.jsonl"
    lines = [{"prompt": f"question {number}", "answer": "yes" * (number % 4 + 1)} for number in range(7)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_everything_measured_comes_as_json_with_its_conditions(forerun: Call, tiny: str, data: Path) -> None:
    ran = forerun("train", "report", tiny, "--data", data, "--exit-layer", 1, "--exit-layer", 3, "--json", *SHORT)
    assert ran.status == 0, ran.err
    told = json.loads(ran.out)

    assert {"command", "hardware", "threads", "versions", "weights", "runner", "date", "model"} <= set(told)
    assert [one["exit_layer"] for one in told["quality"]["exits"]] == [1, 2, 3, 4]
    assert told["quality"]["exits"][-1]["agreement"] == 1
    assert told["quality"]["answers"] == {"exact": 0, "asked": 4, "left_out": 3, "share": 0}
    assert told["before"] is None
    assert [(one["exit_layer"], one["length"]) for one in told["places"]] == [(1, 1), (1, 2), (3, 1), (3, 2)]
    assert all(one["equal"] == one["prompts"] == 2 for one in told["places"])
    # each answer ends with the end of sequence
    assert told["data"] == {"file": "held-out.jsonl", "examples": 7, "learnt_tokens": 3 * 16 + 7, "timed": 2}


def test_the_model_before_stands_beside(forerun: Call, tiny: str, data: Path, tmp_path: Path) -> None:
    before = save_tiny(tmp_path / "before", seed=1)
    ran = forerun("train", "report", tiny, "--data", data, "--against", before, "--timed", 0)

    assert ran.status == 0, ran.err
    for shown in ("loss before", "agreement", "perplexity", "exact answers"):
        assert shown in ran.out
    assert "Speed-up" not in ran.out


def test_a_model_against_itself_has_lost_nothing(forerun: Call, tiny: str, data: Path) -> None:
    told = json.loads(forerun("train", "report", tiny, "--data", data, "--against", tiny, "--timed", 0, "--json").out)

    assert told["quality"] == told["before"]


def test_json_and_pictures_go_into_the_folder(forerun: Call, tiny: str, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "report"
    ran = forerun("train", "report", tiny, "--data", data, "--output", folder, "--limit", 3, *SHORT)

    assert ran.status == 0, ran.err
    assert sorted(path.name for path in folder.iterdir()) == ["exits.png", "report.json", "sweet_spot.png"]
    told = json.loads((folder / "report.json").read_text())
    assert told["data"]["examples"] == 3
    assert {one["exit_layer"] for one in told["places"]} == {1, 2}
    assert "Best: exit" in ran.out


def test_small_weights_and_a_restricted_head_are_measured_as_asked(forerun: Call, data: Path, tmp_path: Path) -> None:
    whole_groups = save_tiny(tmp_path / "whole", intermediate_size=64)
    text = tmp_path / "text.txt"
    text.write_text("yes question")
    flags = ("--weights", "int4", "--vocabulary", 12, "--vocabulary-text", text, "--exit-layer", 2)
    told = json.loads(forerun("train", "report", whole_groups, "--data", data, *flags, *SHORT, "--json").out)

    assert told["weights"] == "int4"
    assert told["drafter_options"] == {"vocabulary": 12, "vocabulary_text": str(text)}
    assert len(told["places"]) == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--exit-layer", "4"), "exit_layer must be in 1..3 for a model of 4 layers, got 4"),
        (("--lengths", "1,0"), "--lengths takes draft lengths from 1 on, got '1,0'"),
        (("--lengths", ""), "--lengths takes draft lengths from 1 on"),
        (("--lengths", "a"), "--lengths takes whole numbers with commas, got 'a'"),
        (("--limit", "0"), "--limit must be at least 1, got 0"),
        (("--timed", "-1"), "--timed must be at least 0, got -1"),
        (("--max-new-tokens", "1"), "--max-new-tokens must be at least 2, got 1"),
        (("--dtype", "int3"), "unknown dtype int3"),
        (("--vocabulary", "1000"), "a draft vocabulary must hold 1..260 tokens, got 1000"),
    ],
)
def test_what_can_not_be_meant_is_refused(
    forerun: Call, tiny: str, data: Path, given: tuple[str, ...], sentence: str
) -> None:
    ran = forerun("train", "report", tiny, "--data", data, *given)

    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.said
    assert len(ran.said.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no example"),
        ('{"prompt": "a", "answer": "b"}\n{"prompt"\n', "line 2: not valid JSON"),
        ('{"prompt": "a", "answer": "%s"}\n' % ("b" * 2000), "line 1: the text has"),
    ],
)
def test_bad_data_is_refused(forerun: Call, tiny: str, tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(content)
    ran = forerun("train", "report", tiny, "--data", file)

    assert ran.status == 2
    assert sentence in ran.said


def test_a_model_with_another_tokenizer_is_no_model_before(
    forerun: Call, tiny: str, data: Path, tmp_path: Path
) -> None:
    other = save_tiny(tmp_path / "other", vocab_size=300)
    tokenizer = AutoTokenizer.from_pretrained(other)
    tokenizer.add_tokens(["something new"])
    tokenizer.save_pretrained(other)
    ran = forerun("train", "report", tiny, "--data", data, "--against", other)

    assert ran.status == 2
    assert "has another tokenizer than" in ran.said


def test_missing_matplotlib_is_said_before_anything_is_loaded(
    forerun: Call, tiny: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forerun.plotting.find_spec", lambda name: None)
    ran = forerun("train", "report", tiny, "--data", data, "--output", tmp_path / "report")

    assert ran.status == 2
    assert "pip install" in ran.said
    assert "loading" not in ran.err
