"""forerun train compact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.models.files.compact_draft import CARD, read_facts

from ..conftest import Ran, answered, check_same_text

Call = Callable[..., Ran]
TRAIN = ("--shape", "layers=2,vocabulary=60", "--epochs", 1, "--rows", 120, "--held-out", 0.3)


@pytest.fixture(scope="module")
def checkpoint(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from forerun.cli import run

    data = answered(tiny, tmp_path_factory.mktemp("data"), "4")
    output = data / "draft"
    files = ("--data", data / "answers.jsonl", "--states", data / "states", "-o", output)
    assert run([*map(str, ("train", "draft", tiny, *files, *TRAIN))]) == 0
    return output


def test_a_trained_draft_is_made_small_and_drafts(forerun: Call, tiny: str, checkpoint: Path, tmp_path: Path) -> None:
    output, about = tmp_path / "small", tmp_path / "about.txt"
    about.write_text("Sixty answers.\n")
    ran = forerun(
        *("train", "compact", tiny, checkpoint, "-o", output, "--weights", "int8"),
        *("--license", "MIT", "--about", about),
    )
    assert ran.status == 0, ran.err
    assert f"{output}: 2 layers in int8, 0.0 MB; draft with it: --drafter draft_model" in " ".join(ran.out.split())
    facts = read_facts(output)
    assert (facts.name, facts.license, facts.vocabulary, facts.activations) == ("small", "MIT", 60, 8)
    assert len(facts.acceptance) == 4
    assert "Sixty answers." in (output / CARD).read_text()
    check_same_text(forerun, tiny, "--drafter", "draft_model", "--drafter-model", output)


def test_as_json_what_was_written_stands_alone(forerun: Call, tiny: str, checkpoint: Path, tmp_path: Path) -> None:
    ran = forerun("train", "compact", tiny, checkpoint, "-o", tmp_path / "small", "--weights", "int8", "--json")
    told = json.loads(ran.out)
    assert (told["directory"], told["weights"], told["name"]) == (str(tmp_path / "small"), "int8", "small")
    assert told["bytes"] > 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--weights", "bf16"), "a compact draft holds weights as int4 or int8, got 'bf16'"),
        (("--weights", "int4"), "a matrix has 48; take int8"),
        (("--activations", "5"), "8 or 16"),
    ],
)
def test_what_can_not_be_is_refused_in_a_sentence(
    forerun: Call, tiny: str, checkpoint: Path, tmp_path: Path, given: tuple[str, str], sentence: str
) -> None:
    ran = forerun("train", "compact", tiny, checkpoint, "-o", tmp_path / "small", *given)
    assert ran.status == 2
    assert sentence in ran.said
    assert not (tmp_path / "small").exists()


def test_what_is_no_trained_draft_is_refused(forerun: Call, tiny: str, tmp_path: Path) -> None:
    ran = forerun("train", "compact", tiny, tiny, "-o", tmp_path / "small")
    assert ran.status == 2
    assert "holds no draft of forerun train draft" in ran.said
