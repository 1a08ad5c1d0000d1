"""forerun train draft."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.models.files.draft import read_draft

from ..conftest import Ran, answered, check_same_text

Call = Callable[..., Ran]
QUICK = ("--epochs", 2, "--rows", 120, "--held-out", 0.3, "--save-every", 2)


@pytest.fixture(scope="module")
def data(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's answers, with their last states beside them."""
    return answered(tiny, tmp_path_factory.mktemp("data"), "4")


def trained(forerun: Call, tiny: str, data: Path, output: Path, *given: object) -> Ran:
    file = data / "answers.jsonl"
    return forerun("train", "draft", tiny, "--data", file, "-o", output, *QUICK, *given)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", ["layers=2,vocabulary=60", "layers=1,width=24,mlp=32,heads=2,vocabulary=60"])
def test_a_draft_is_trained_and_drafts(forerun: Call, tiny: str, data: Path, tmp_path: Path, shape: str) -> None:
    output = tmp_path / "draft"
    ran = trained(forerun, tiny, data, output, "--shape", shape, "--states", data / "states")
    assert ran.status == 0
    assert f"{output}: " in ran.out
    assert "right tokens at each position of a draft, on 2 held-out texts: 0." in ran.out
    file = read_draft(output)
    assert file is not None
    assert file.vocabulary == 60
    check_same_text(forerun, tiny, "--drafter", "draft_model", "--drafter-model", output)


def test_as_json_the_report_stands_alone_and_states_are_read_where_none_are_kept(
    forerun: Call, tiny: str, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "draft"
    ran = trained(forerun, tiny, data, output, "--shape", "layers=2", "--from-layers", "1,3", "--limit", 5, "--json")
    told = json.loads(ran.out)
    assert (told["output"], told["texts"], told["held_out"]) == (str(output), 3, 2)
    file = read_draft(output)
    assert file is not None
    assert file.trained["shape"]["layers"] == [1, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--shape", "layers=5"), "a draft's layers must be in 1..4"),
        (("--shape", "layers=0"), "a draft's layers must be in 1..4"),
        (("--shape", "layers=two"), "layers of a shape must be a whole number from 1 on, got 'two'"),
        (("--shape", "depth=2"), "unknown part 'depth' of a shape; known: layers, width, mlp"),
        (("--shape", "layers=2,heads=3"), "must keep the target's 2 queries for each key"),
        (("--shape", "layers=2,vocabulary=999"), "a draft's vocabulary must be in 1..260"),
        (("--shape", "layers=2", "--from-layers", "1"), "a draft of 2 layers begins with as many of the target's 0..3"),
        (("--shape", "layers=2", "--from-layers", "a"), "--from-layers takes whole numbers with commas"),
        (("--shape", "layers=2", "--limit", 0), "--limit must be at least 1, got 0"),
        (("--shape", "layers=2", "--epochs", 0), "epochs must be at least 1, got 0"),
        (("--shape", "layers=2", "--resume"), "nothing to resume"),
        (("--shape", "layers=2", "--passes", 2), "unknown option --passes"),
        ((), "--shape"),
    ],
)
def test_what_can_not_be_trained_is_refused(
    forerun: Call, tiny: str, data: Path, tmp_path: Path, given: tuple[object, ...], sentence: str
) -> None:
    ran = trained(forerun, tiny, data, tmp_path / "draft", *given)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.said
    assert list(tmp_path.iterdir()) == []
