from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from forerun.core.identity import Identity
from forerun.models.files import known_drafts
from forerun.models.files.known_tables import find_tables, known_table
from forerun.models.files.ngrams import KIND, NgramFile, write_ngrams

TARGET = Identity("llama", 4, 32, 97, "a" * 16, "b" * 16)
TABLE = NgramFile(
    TARGET, 2, torch.tensor([3, 9]), torch.tensor([1, 2]), torch.tensor([9, 255]), 0.25, {"model": "tiny"}
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(known_drafts.SWITCH, str(tmp_path / "own"))
    monkeypatch.setattr(known_drafts, "user_data_dir", lambda name: str(tmp_path / "none"))
    monkeypatch.setattr(known_drafts, "shipped_folder", lambda: tmp_path / "shipped")
    return tmp_path / "own"


def test_a_table_is_found_by_name_and_for_its_weights_alone(folder: Path) -> None:
    write_ngrams(TABLE, folder / "mine")
    write_ngrams(replace(TABLE, target=replace(TARGET, weights="c" * 16)), folder / "other")
    found = find_tables()
    assert [one.name for one in found.tables] == ["mine", "other"]
    (one,) = found.fitting(TARGET)
    assert (one.directory, one.source, one.table.target_name) == (folder / "mine", str(folder), "tiny")
    assert one.nbytes == (folder / "mine" / KIND.weights_file).stat().st_size
    assert one.table.keys.tolist() == [3, 9]
    assert (known_table("mine"), known_table("none")) == (folder / "mine", None)


def test_one_that_can_not_be_read_is_told_and_does_not_hide_others(folder: Path) -> None:
    for name in ("broken", "fine"):
        write_ngrams(TABLE, folder / name)
    (folder / "broken" / KIND.weights_file).write_bytes(b"no")
    found = find_tables()
    assert [one.name for one in found.tables] == ["fine"]
    assert "holds no n-gram table that can be read" in found.unreadable[folder / "broken"]


def test_ones_own_table_stands_before_a_shipped_one_of_its_name(folder: Path) -> None:
    for place in (folder, folder.parent / "shipped"):
        write_ngrams(TABLE, place / "same")
    assert [one.directory for one in find_tables().tables] == [folder / "same"]
