"""Where trained drafts are looked for, and which of them fit a model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forerun.core.identity import Identity
from forerun.models.files import known_drafts as known
from forerun.models.files.compact_draft import FILE, CompactDraft, write_compact
from forerun.testing import tiny_draft, tiny_model

TARGET = Identity("llama", 4, 32, 97, "a" * 16, "b" * 16)
OTHER_WEIGHTS = replace(TARGET, weights="c" * 16)


@pytest.fixture(scope="module")
def draft() -> CompactDraft:
    return tiny_draft(tiny_model("llama"), (0,), target=TARGET)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """One of FORERUN_DRAFTS, the user's and the package's, all of which begin empty."""
    found = {name: tmp_path / name for name in ("given", "data/drafts", "shipped")}
    for folder in found.values():
        folder.mkdir(parents=True)
    monkeypatch.setenv(known.SWITCH, str(found["given"]))
    monkeypatch.setattr(known, "user_data_dir", lambda name: str(tmp_path / "data"))
    monkeypatch.setattr(known, "shipped_folder", lambda: found["shipped"])
    return found


def put(folder: Path, name: str, draft: CompactDraft, **facts: Any) -> Path:
    write_compact(replace(draft, facts=replace(draft.facts, name=name, **facts)), folder / name, "")
    return folder / name


def test_each_folder_is_searched(folders: dict[str, Path], draft: CompactDraft) -> None:
    placed = [put(folder, f"draft-{index}", draft) for index, folder in enumerate(folders.values())]
    found = known.find_drafts()
    assert [one.directory for one in found.drafts] == placed
    assert [one.source for one in found.drafts] == [str(folders["given"]), str(folders["data/drafts"]), "forerun"]
    assert [one.nbytes for one in found.drafts] == [(path / FILE).stat().st_size for path in placed]
    assert found.unreadable == {}


def test_ones_own_draft_stands_before_a_shipped_one_of_its_name(folders: dict[str, Path], draft: CompactDraft) -> None:
    put(folders["shipped"], "same", draft)
    own = put(folders["given"], "same", draft)
    assert [one.directory for one in known.find_drafts().drafts] == [own]
    assert known.compact_directory("same") == own


def test_several_folders_may_be_named(folders: dict[str, Path], draft: CompactDraft, tmp_path: Path) -> None:
    named = [str(tmp_path / "one"), str(tmp_path / "two")]
    listed = known.draft_folders({known.SWITCH: os.pathsep.join(named)})
    assert list(listed) == [Path(named[0]), Path(named[1]), folders["data/drafts"], folders["shipped"]]
    assert list(known.draft_folders({})) == [folders["data/drafts"], folders["shipped"]]


def test_folders_that_are_not_there_hold_none(monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path]) -> None:
    for folder in folders.values():
        folder.rmdir()
    assert known.find_drafts().drafts == ()
    assert known.known_drafts(TARGET) == []


def test_those_of_the_same_weights_come_first_and_of_these_the_best(
    folders: dict[str, Path], draft: CompactDraft
) -> None:
    given = folders["given"]
    put(given, "a-near", draft, target=OTHER_WEIGHTS, trained={"acceptance": [0.9]})
    put(given, "b-fair", draft, trained={"acceptance": [0.5, 0.5]})
    put(given, "c-good", draft, trained={"acceptance": [0.6, 0.6]})
    put(given, "d-unknown", draft, trained={})
    put(given, "e-foreign", draft, target=replace(TARGET, hidden_size=64))
    assert [one.name for one in known.known_drafts(TARGET)] == ["c-good", "b-fair", "d-unknown", "a-near"]
    assert [one.name for one in known.known_drafts(OTHER_WEIGHTS)] == ["a-near", "c-good", "b-fair", "d-unknown"]
    assert [one.name for one in known.known_drafts(replace(TARGET, num_layers=5))] == []


def test_one_that_can_not_be_read_is_told_and_does_not_hide_others(
    folders: dict[str, Path], draft: CompactDraft
) -> None:
    broken, fine = put(folders["given"], "broken", draft), put(folders["given"], "fine", draft)
    (broken / FILE).write_bytes(b"no")
    found = known.find_drafts()
    assert [one.directory for one in found.drafts] == [fine]
    assert list(found.unreadable) == [broken]
    assert "holds no compact draft that can be read" in found.unreadable[broken]


def test_a_name_or_a_path_leads_to_it(folders: dict[str, Path], draft: CompactDraft, tmp_path: Path) -> None:
    own = put(folders["given"], "mine", draft)
    for model in ("mine", own, str(own)):
        assert known.compact_directory(model) == own
    (tmp_path / "a model").mkdir()
    for model in ("smollm2", "somebody/model", tmp_path / "a model", tmp_path / "none", object()):
        assert known.compact_directory(model) is None


def test_a_directory_here_stands_before_a_name(
    folders: dict[str, Path], draft: CompactDraft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folders["given"], "mine", draft)
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert known.compact_directory("mine") is None
