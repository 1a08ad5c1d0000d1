"""From a checkpoint of forerun train draft to a compact draft of the same model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import load
from forerun.core.identity import identity_of
from forerun.errors import UnsupportedModel, UnsupportedOption
from forerun.export.compact import write_compacted
from forerun.models.files.compact_draft import CARD, FILE, RANKING, read_compact
from forerun.models.files.draft import DraftFile, write_draft
from forerun.models.files.draft_shape import DraftShape
from forerun.models.loading.load import open_module
from forerun.testing import save_tiny
from forerun.train.distil.activation_statistics import collect_statistics
from forerun.train.distil.draft_init import Cut, new_draft

CHANGES = {"intermediate_size": 64}
TRAINED = {"acceptance": [0.6, 0.5], "steps": 7, "shape": {"layers": [0, 3]}, "recipe": {"epochs": 3}, "data": "abc"}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "target", **CHANGES)


def cut(target: Path, output: Path, change: Any = None, **shape: int) -> Path:
    """What forerun train draft writes after no step at all; change: of the draft before it is written."""
    module = open_module(target, device="cpu")
    layers = (0, 3)
    wanted = replace(DraftShape.of(module.model.config), layers=2, vocabulary=200, **shape)
    seen = collect_statistics(module.model, [list(range(20))], lambda: None) if shape else None
    draft = new_draft(module.model, Cut(wanted, layers), seen).to(torch.bfloat16)
    if change is not None:
        change(draft)
    draft.save_pretrained(output)
    base = identity_of(module.model.to(torch.bfloat16), module.vocabulary)
    write_draft(DraftFile(torch.arange(250), 200, {**TRAINED, "base": base.as_dict()}), output)
    return output


@pytest.fixture(scope="module")
def checkpoint(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cut(target, tmp_path_factory.mktemp("drafts") / "checkpoint")


@pytest.mark.parametrize("weights", ["int4", "int8"])
def test_a_checkpoint_becomes_a_small_file_that_drafts(
    target: Path, checkpoint: Path, tmp_path: Path, weights: str
) -> None:
    place = tmp_path / "small"
    written = write_compacted(target, checkpoint, place, weights=weights, activations=16, license="MIT")
    facts = written.facts
    assert (written.directory, written.bytes) == (place, (place / FILE).stat().st_size)
    assert (facts.name, facts.weights, facts.activations, facts.vocabulary) == ("small", weights, 16, 200)
    assert (facts.layers, facts.acceptance, facts.license) == (2, (0.6, 0.5), "MIT")
    read = read_compact(place)
    assert read.facts == facts
    assert read.tensors[RANKING].tolist() == list(range(250))
    assert not any("embed" in name or "lm_head" in name for name in read.tensors)

    def drafted(model: Path) -> Any:
        engine = load(target, drafter="draft_model", drafter_options={"model": model}, dtype="float32")
        return engine.generate("some words", max_new_tokens=20)

    small, whole = drafted(place), drafted(checkpoint)
    assert small.ids == whole.ids
    assert small.stats.drafted > 0


def test_the_card_tells_data_licence_and_figures(target: Path, checkpoint: Path, tmp_path: Path) -> None:
    write_compacted(target, checkpoint, tmp_path / "small", license="Apache-2.0", about="Answers to questions.")
    card = (tmp_path / "small" / CARD).read_text()
    assert card.startswith("---\nlicense: apache-2.0\nbase_model: target\n")
    for told in (
        "# small",
        "Answers to questions.",
        "Licence: Apache-2.0.",
        "| right | 0.60 | 0.50 |",
        "| epochs | 3 |",
        "| steps | 7 |",
    ):
        assert told in card
    assert "0, 3" in card


def test_a_narrower_draft_has_embeddings_of_its_own(target: Path, tmp_path: Path) -> None:
    narrow = cut(target, tmp_path / "narrow", width=16)
    with pytest.raises(
        UnsupportedOption, match=r"is 16 wide and .* 32, so its embeddings are its own; only a draft of"
    ):
        write_compacted(target, narrow, tmp_path / "small")
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(("table", "named"), [("embed_tokens", "embeddings"), ("lm_head", "an output head")])
def test_tables_that_were_trained_are_refused(target: Path, tmp_path: Path, table: str, named: str) -> None:
    def change(draft: Any) -> None:
        own = draft.model.embed_tokens if table == "embed_tokens" else draft.lm_head
        own.weight.data[5, 3] += 1

    changed = cut(target, tmp_path / "changed", change)
    with pytest.raises(UnsupportedOption, match=f"has {named} other than those of .*; use the checkpoint as it is"):
        write_compacted(target, changed, tmp_path / "small")


def test_a_draft_of_another_model_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other", seed=1, **CHANGES)
    with pytest.raises(ValueError, match=r"was trained for another model than other: its weights is "):
        write_compacted(other, checkpoint, tmp_path / "small")


def test_a_checkpoint_that_forerun_did_not_train_is_refused(target: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no draft of forerun train draft"):
        write_compacted(target, target, tmp_path / "small")


def test_a_family_without_a_lean_decoder_is_refused(tmp_path: Path) -> None:
    target = save_tiny(tmp_path / "neox", "gpt_neox")
    draft = cut(target, tmp_path / "draft")
    with pytest.raises(UnsupportedModel, match=r"the lean decoder, which compact drafts run on, can't run .*gpt_neox"):
        write_compacted(target, draft, tmp_path / "small")


def test_bad_options_are_refused_before_anything_is_written(target: Path, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOption, match="int4 or int8, got 'bf16'"):
        write_compacted(target, checkpoint, tmp_path / "small", weights="bf16")
    with pytest.raises(UnsupportedOption, match="8 or 16"):
        write_compacted(target, checkpoint, tmp_path / "small", activations=4)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="is there already"):
        write_compacted(target, checkpoint, tmp_path)
