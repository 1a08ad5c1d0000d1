"""A compact draft on disk: whole or not at all, told by its header, and for models that it fits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from forerun.core.identity import Identity
from forerun.errors import InvalidModelFile, ModelNotFound
from forerun.models.files.compact_draft import (
    CARD,
    FILE,
    RANKING,
    CompactDraft,
    is_compact,
    read_compact,
    read_facts,
    write_compact,
)
from forerun.testing import tiny_draft, tiny_model

TARGET = Identity("llama", 4, 32, 97, "a" * 16, "b" * 16)


@pytest.fixture(scope="module")
def draft() -> CompactDraft:
    return tiny_draft(tiny_model("llama"), (0, 3), target=TARGET)


@pytest.fixture
def place(draft: CompactDraft, tmp_path: Path) -> Path:
    write_compact(draft, tmp_path / "tiny", "A card.\n")
    return tmp_path / "tiny"


def test_what_is_written_is_read(draft: CompactDraft, place: Path) -> None:
    read = read_compact(place)
    assert read.tensors.keys() == draft.tensors.keys()
    assert all(torch.equal(read.tensors[name], value) for name, value in draft.tensors.items())
    assert replace(read.facts, digest="") == draft.facts
    assert read.facts == read_facts(place)
    assert len(read.facts.digest) == 16
    assert (read.facts.layers, read.facts.acceptance) == (2, (0.5, 0.25))


def test_it_is_one_file_with_a_card(place: Path) -> None:
    assert sorted(path.name for path in place.iterdir()) == sorted([FILE, CARD])
    assert (place / CARD).read_text() == "A card.\n"
    assert is_compact(place)
    assert not is_compact(place.parent)


def test_neither_embeddings_nor_head_are_in_it(draft: CompactDraft) -> None:
    assert not any("embed" in name or "lm_head" in name for name in draft.tensors)
    held = sum(value.nbytes for name, value in draft.tensors.items() if name != RANKING)
    assert held < 1.1 * sum(p.numel() for p in tiny_model("llama", num_hidden_layers=2).model.layers.parameters())


def test_facts_are_read_without_the_tensors(place: Path) -> None:
    damaged = bytearray((place / FILE).read_bytes())
    damaged[-3] ^= 1
    (place / FILE).write_bytes(damaged)
    assert read_facts(place).name == "tiny"
    with pytest.raises(InvalidModelFile, match="holds no compact draft that can be read: its tensors are not those"):
        read_compact(place)


def test_a_directory_that_is_there_is_left_alone(draft: CompactDraft, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is there already; name another directory"):
        write_compact(draft, tmp_path, "")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(draft: CompactDraft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ValueError, match=r"can't write the compact draft to .*No space left on device"):
        write_compact(draft, tmp_path / "tiny", "")
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_none_it_says_so(tmp_path: Path) -> None:
    for read in (read_facts, read_compact):
        with pytest.raises(ModelNotFound, match=rf"no compact draft at .*: there is no {FILE}"):
            read(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 1000, -1])
def test_a_truncated_file_is_refused(place: Path, kept: int) -> None:
    (place / FILE).write_bytes((place / FILE).read_bytes()[:kept])
    with pytest.raises(InvalidModelFile, match="holds no compact draft that can be read: "):
        read_facts(place)


def retold(place: Path, **values: Any) -> None:
    """Write other metadata over the file's own."""
    with safe_open(place / FILE, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        told = json.loads(file.metadata()["forerun"])
    save_file(tensors, place / FILE, {"forerun": json.dumps({**told, **values})})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"version": 2}, r"format 'forerun compact draft', version 2; this release reads .* version 1"),
        ({"format": "something else"}, "format 'something else', version 1"),
        ({"target": {"family": "llama"}}, "num_layers is missing"),
        ({"target": None}, "."),
    ],
)
def test_another_version_and_a_lack_of_facts_are_told(place: Path, values: dict[str, Any], said: str) -> None:
    retold(place, **values)
    for read in (read_facts, read_compact):
        with pytest.raises(InvalidModelFile, match=said):
            read(place)


def test_a_safetensors_file_of_somebody_else_is_refused(place: Path) -> None:
    save_file({"x": torch.zeros(2)}, place / FILE)
    with pytest.raises(InvalidModelFile, match="format None, version None"):
        read_facts(place)


def test_a_file_without_a_ranking_is_refused(draft: CompactDraft, tmp_path: Path) -> None:
    tensors = {name: value for name, value in draft.tensors.items() if name != RANKING}
    write_compact(replace(draft, tensors=tensors), tmp_path / "tiny", "")
    with pytest.raises(InvalidModelFile, match="it holds no ranking of tokens"):
        read_compact(tmp_path / "tiny")


@pytest.mark.parametrize(
    ("other", "near", "refused"),
    [
        (TARGET, False, None),
        (replace(TARGET, vocabulary=""), False, None),
        (replace(TARGET, weights="c" * 16), True, None),
        (replace(TARGET, weights="c" * 16, vocabulary=""), False, "weights is a{16} here and c{16} there"),
        (replace(TARGET, weights="c" * 16, vocabulary="d" * 16), False, "weights is a{16} here"),
        (replace(TARGET, num_layers=6), False, "num_layers is 4 here and 6 there"),
        (replace(TARGET, family="qwen2", weights="c" * 16), False, "family is llama here and qwen2 there"),
    ],
)
def test_it_fits_models_of_its_targets_shape_and_tokenizer(
    draft: CompactDraft, other: Identity, near: bool, refused: str | None
) -> None:
    assert draft.facts.near(other) == near
    if refused is None:
        draft.facts.check_target(other)
        return
    with pytest.raises(
        ValueError, match=rf"^the draft tiny was trained for another model, the tiny model: .*{refused}"
    ):
        draft.facts.check_target(other)


def test_what_a_draft_promises_is_the_tokens_that_are_right(draft: CompactDraft) -> None:
    assert draft.facts.expected == pytest.approx(0.5 + 0.5 * 0.25)
    assert replace(draft.facts, trained={}).expected == 0
