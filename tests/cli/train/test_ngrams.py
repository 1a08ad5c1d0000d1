"""forerun train ngrams, and what forerun drafts says of tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.models.files import known_drafts
from forerun.models.files.ngrams import KIND, read_ngrams

from ..conftest import Ran, answered, check_same_text

Call = Callable[..., Ran]


@pytest.fixture(scope="module")
def data(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return answered(tiny, tmp_path_factory.mktemp("data"), "4") / "answers.jsonl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own; the others are empty."""
    monkeypatch.setenv(known_drafts.SWITCH, str(tmp_path / "own"))
    monkeypatch.setattr(known_drafts, "user_data_dir", lambda name: str(tmp_path / "none"))
    monkeypatch.setattr(known_drafts, "shipped_folder", lambda: tmp_path / "shipped")
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def counted(forerun: Call, tiny: str, data: Path, output: Path, *given: object) -> Ran:
    # answers of a random model have little in common: most of them, held out, judge the rest
    return forerun("train", "ngrams", tiny, "--data", data, "-o", output, "--held-out", 0.5, *given)


def test_a_table_is_counted_and_drafts(forerun: Call, tiny: str, data: Path, folder: Path) -> None:
    ran = counted(forerun, tiny, data, folder / "mine")
    assert ran.status == 0, ran.err
    said = " ".join(ran.out.split())
    for part in ("contexts of up to 4 tokens", "held-out tokens the table says", "--drafter suffix --ngrams"):
        assert part in said
    check_same_text(forerun, tiny, "--drafter", "suffix", "--ngrams", folder / "mine")
    check_same_text(forerun, tiny, "--drafter", "ngrams", "--table", "mine")
    check_same_text(forerun, tiny, "--drafter", "auto")


def test_as_json_it_stands_alone(forerun: Call, tiny: str, data: Path, folder: Path) -> None:
    told = json.loads(counted(forerun, tiny, data, folder / "mine", "--longest", 2, "--json").out)
    table = read_ngrams(folder / "mine")
    assert (told["directory"], told["contexts"]) == (str(folder / "mine"), len(table.keys))
    assert told["bytes"] == (folder / "mine" / KIND.weights_file).stat().st_size
    assert told["right"] == table.right
    assert table.longest == 2


def test_known_tables_are_listed(forerun: Call, tiny: str, data: Path, folder: Path) -> None:
    counted(forerun, tiny, data, folder / "mine")
    out = " ".join(forerun("drafts", tiny).out.split())
    for part in ("mine", "contexts of up to 4 tokens", "--drafter suffix --ngrams mine"):
        assert part in out
    (one,) = json.loads(forerun("drafts", tiny, "--json").out)["tables"]
    assert (one["name"], one["source"], one["longest"]) == ("mine", str(folder), 4)


def test_a_table_that_cannot_be_read_is_told_and_stops_nothing(
    forerun: Call, tiny: str, data: Path, folder: Path
) -> None:
    counted(forerun, tiny, data, folder / "mine")
    (folder / "mine" / KIND.weights_file).write_bytes(b"nothing")
    listed = forerun("drafts", tiny)
    assert listed.status == 0
    assert "holds no n-gram table that can be read" in " ".join(listed.err.split())
    check_same_text(forerun, tiny, "--drafter", "auto")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [(("--longest", 9), "the longest context must be of 1..8 tokens, got 9"), (("--held-out", 0), "held-out part")],
)
def test_bad_values_end_in_one_sentence(
    forerun: Call, tiny: str, data: Path, folder: Path, given: tuple[object, ...], sentence: str
) -> None:
    ran = forerun("train", "ngrams", tiny, "--data", data, "-o", folder / "mine", *given)
    assert ran.status == 2
    assert sentence in " ".join(ran.err.split())
    assert not (folder / "mine").exists()


def test_an_output_that_is_there_is_left_alone(forerun: Call, tiny: str, data: Path, folder: Path) -> None:
    ran = counted(forerun, tiny, data, folder)
    assert ran.status == 2
    assert "exists already" in " ".join(ran.err.split())
