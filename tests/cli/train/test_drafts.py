"""forerun drafts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.models.files import known_drafts
from forerun.models.files.compact_draft import FILE
from forerun.models.loading.load import open_module
from forerun.testing import save_tiny, save_tiny_draft, tiny_tokenizer

from ..conftest import Ran

Call = Callable[..., Ran]


@pytest.fixture
def folder(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with a draft of the tiny model; the others are empty or not there."""
    folder = tmp_path / "drafts"
    monkeypatch.setenv(known_drafts.SWITCH, str(folder))
    monkeypatch.setattr(known_drafts, "user_data_dir", lambda name: str(tmp_path / "none"))
    monkeypatch.setattr(known_drafts, "shipped_folder", lambda: tmp_path / "shipped")
    model = open_module(tiny, device="cpu").model
    save_tiny_draft(folder / "mine", model, (0, 3), tokenizer=tiny_tokenizer())
    return folder


def told(forerun: Call, *given: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(forerun("drafts", *given, "--json").out)
    return found


def test_a_draft_is_listed_for_its_model(forerun: Call, folder: Path, tiny: str) -> None:
    (one,) = told(forerun, tiny)["drafts"]  # type: ignore[misc]
    assert (one["name"], one["source"], one["license"]) == ("mine", str(folder), "Apache-2.0")
    assert (one["layers"], one["weights"], one["acceptance"]) == (2, "int8", [0.5, 0.25])
    assert one["bytes"] == (folder / "mine" / FILE).stat().st_size
    assert one["same_weights"] is True


def test_the_table_tells_a_reader_the_same(forerun: Call, folder: Path, tiny: str) -> None:
    out = " ".join(forerun("drafts", tiny).out.split())
    for said in ("mine", "0.50 0.25", "2 layers", "Apache-2.0", "--drafter draft_model --drafter-model mine"):
        assert said in out
    assert out.count("searched: ") == 3
    assert out.count("(not there)") == 2
    assert list(told(forerun)["folders"].values()) == [True, False, False]  # type: ignore[attr-defined]


def test_without_a_model_all_are_listed(forerun: Call, folder: Path) -> None:
    (one,) = told(forerun)["drafts"]  # type: ignore[misc]
    assert one["same_weights"] is None
    assert one["target"] == "the tiny model"


def test_for_other_weights_of_its_shape_it_is_listed_with_a_warning(
    forerun: Call, folder: Path, tmp_path: Path
) -> None:
    tuned = str(save_tiny(tmp_path / "tuned", seed=1, max_position_embeddings=1024))
    (one,) = told(forerun, tuned)["drafts"]  # type: ignore[misc]
    assert one["same_weights"] is False
    assert "mine was trained for other weights of this shape and tokenizer" in " ".join(
        forerun("drafts", tuned).out.split()
    )


def test_a_model_without_drafts_is_told_how_to_make_one(forerun: Call, folder: Path, tmp_path: Path) -> None:
    other = str(save_tiny(tmp_path / "other", num_hidden_layers=2))
    ran = forerun("drafts", other)
    assert ran.status == 0
    assert f"No trained draft is known for {other}; make one with: forerun train draft" in " ".join(ran.out.split())
    assert told(forerun, other)["drafts"] == []


def test_one_that_can_not_be_read_is_told(forerun: Call, folder: Path, tiny: str) -> None:
    (folder / "mine" / FILE).write_bytes(b"cut short")
    ran = forerun("drafts", tiny)
    assert ran.status == 0
    assert "holds no compact draft that can be read" in ran.err
    assert list(told(forerun, tiny)["unreadable"]) == [str(folder / "mine")]  # type: ignore[call-overload]


def test_a_model_that_is_not_there_is_refused(forerun: Call, folder: Path) -> None:
    ran = forerun("drafts", "./no-such-model")
    assert ran.status == 2
    assert "no model at ./no-such-model" in ran.said
