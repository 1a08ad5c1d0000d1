from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Ran

Call = Callable[..., Ran]
SELF = ("--drafter", "self", "--exit-layer", 2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten answers at temperature 0.8, as train answers writes them."""
    file = tmp_path_factory.mktemp("data") / "answers.jsonl"
    lines = (
        {
            "prompt_ids": [5, 6, 7, 8 + index],
            "answer_ids": [(7 * index + 3 * place) % 250 for place in range(12)],
            "made_by": {"temperature": 0.8, "top_p": 0.9},
        }
        for index in range(10)
    )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def call(forerun: Call, tiny: str, data: Path, output: Path, *given: Any) -> Ran:
    quick = ("--epochs", 2, "--depth", 1, "--rows", 32)
    return forerun("train", "acceptance-head", tiny, "--data", data, "--output", output, *quick, *given)


def test_a_head_is_trained_and_stops_drafts(forerun: Call, tiny: str, data: Path, tmp_path: Path) -> None:
    ran = call(forerun, tiny, data, tmp_path / "head", *SELF)

    assert ran.status == 0
    assert "drafted tokens of 9 texts" in ran.out
    assert "held out: cross-entropy" in ran.out
    options = ("--policy", "acceptance_head", "--head", tmp_path / "head", "--max-new-tokens", 8)
    assert forerun("generate", tiny, "hi there", *SELF, *options).status == 0


def test_json_is_one_object(forerun: Call, tiny: str, data: Path, tmp_path: Path) -> None:
    found = json.loads(call(forerun, tiny, data, tmp_path / "head", *SELF, "--json").out)

    assert (found["texts"], found["held_out"], found["left_out"]) == (9, 1, 0)
    assert 0 < found["h"] < 1


def test_what_was_asked_for_is_in_the_file(forerun: Call, tiny: str, data: Path, tmp_path: Path) -> None:
    asked = ("--reject-weight", 3, "--mixing", 0.3, "--held-out", 0.4, "--seed", 5, "--cost", 0.2, "--limit", 8)
    assert call(forerun, tiny, data, tmp_path / "head", *SELF, *asked).status == 0

    about = json.loads((tmp_path / "head" / "head.json").read_text())
    trained = about["trained"]
    assert about["reject_weight"] == 3
    assert about["pair"]["drafter"] == "self up to layer 2"
    assert (trained["recipe"]["mixing"], trained["recipe"]["seed"], trained["cost"]) == (0.3, 5, 0.2)
    assert trained["texts"] + trained["held_out"] == 8
    assert trained["sampling"] == {"temperature": 0.8, "top_p": 0.9, "top_k": 0}


def test_a_head_is_refused_with_another_drafter(forerun: Call, tiny: str, data: Path, tmp_path: Path) -> None:
    call(forerun, tiny, data, tmp_path / "head", *SELF)
    options = ("--policy", "acceptance_head", "--head", tmp_path / "head")
    ran = forerun("generate", tiny, "hi", "--drafter", "self", "--exit-layer", 1, *options)

    assert ran.status == 2
    assert "trained for another drafter: self up to layer 2 there, self up to layer 1 here" in ran.said


def test_a_draft_model_is_named_by_its_flag(forerun: Call, tiny: str, data: Path, tmp_path: Path) -> None:
    ran = call(forerun, tiny, data, tmp_path / "head", "--drafter", "draft_model", "--drafter-model", tiny, "--json")

    assert json.loads(ran.out)["accepted"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--drafter", "lookup"), "a Lookup can't read a text in one pass"),
        (("--drafter", "nobody"), "unknown drafter 'nobody'"),
        ((*SELF, "--depth", -1), "depth must be at least 0, got -1"),
        ((*SELF, "--mixing", 1), "mixing rate must be in [0, 1), got 1"),
        ((*SELF, "--temperature", 0.5), "were drawn at temperature 0.8, so labels can't be of 0.5"),
        ((*SELF, "--cost", 0), "a draft step's cost must be above 0"),
        ((*SELF, "--limit", 1), "at least two different examples are needed"),
        ((*SELF, "--k", 3), "unknown option --k"),
    ],
)
def test_a_bad_request_is_one_sentence(
    forerun: Call, tiny: str, data: Path, tmp_path: Path, given: tuple[Any, ...], message: str
) -> None:
    ran = call(forerun, tiny, data, tmp_path / "head", *given)

    assert ran.status == 2
    assert message in ran.said
    assert len(ran.said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_empty_data_and_a_taken_place_are_refused(forerun: Call, tiny: str, data: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")

    ran = call(forerun, tiny, empty, tmp_path / "head", *SELF)
    assert (ran.status, "holds no example" in ran.said) == (2, True)
    ran = call(forerun, tiny, data, tmp_path, *SELF)
    assert (ran.status, "is there already; name another directory" in ran.said) == (2, True)


def test_files_of_different_laws_are_refused(forerun: Call, tiny: str, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(data.read_text().replace("0.8", "0.7"))
    ran = call(forerun, tiny, data, tmp_path / "head", *SELF, "--data", other)

    assert (ran.status, "drawn at several temperatures or top_p" in ran.said) == (2, True)
