"""Trained drafts written for other engines: what they say there is what they say in forerun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from forerun import load
from forerun.errors import UnsupportedModel, UnsupportedOption
from forerun.export.engine_draft import EngineDraft, export_for_engines
from forerun.models.loading.load import open_module
from forerun.testing import save_tiny, save_tiny_draft

SAID = 120


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose states have something in common, as those of trained models do."""
    place = save_tiny(tmp_path_factory.mktemp("models") / "target", intermediate_size=64)
    made = AutoModelForCausalLM.from_pretrained(place)
    made.get_input_embeddings().weight.data[:, 0] += 10.0
    made.save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def draft(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    opened = open_module(target, dtype=torch.float32, device="cpu")
    place = tmp_path_factory.mktemp("drafts") / "small"
    return save_tiny_draft(place, opened.model, (0, 3), tokenizer=opened.tokenizer, vocabulary=SAID)


@pytest.fixture(scope="module")
def written(target: Path, draft: Path, tmp_path_factory: pytest.TempPathFactory) -> EngineDraft:
    return export_for_engines(target, draft, tmp_path_factory.mktemp("out") / "draft", dtype="float32")


def drafted(target: Path, **options: Any) -> tuple[tuple[int, ...], int, int]:
    policy: dict[str, Any] = {"policy": "fixed", "policy_options": {"k": 3}}
    engine = load(target, drafter="draft_model", drafter_options=options, dtype="float32", **policy)
    found = engine.generate("some words", max_new_tokens=24)
    return tuple(found.ids), found.stats.drafted, found.stats.accepted


def test_the_directory_drafts_what_the_compact_draft_drafts(target: Path, draft: Path, written: EngineDraft) -> None:
    own = drafted(target, model=draft)
    assert drafted(target, model=written.path, vocabulary=0) == own
    assert own[1] > 0


def test_transformers_takes_it_as_an_assistant(target: Path, written: EngineDraft) -> None:
    model, assistant = (AutoModelForCausalLM.from_pretrained(place) for place in (target, written.path))
    ids = torch.tensor([[5, 9, 20, 31]])
    given: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 16, "do_sample": False}
    assert torch.equal(model.generate(ids, assistant_model=assistant, **given), model.generate(ids, **given))


def test_it_never_says_a_token_that_was_cut(draft: Path, written: EngineDraft) -> None:
    from forerun.drafters.vocabulary import first_ranked
    from forerun.models.files.compact_draft import RANKING, read_compact

    model = AutoModelForCausalLM.from_pretrained(written.path)
    assert not model.config.tie_word_embeddings
    said = first_ranked(read_compact(draft).tensors[RANKING].tolist(), SAID, written.vocabulary)
    ids = torch.randint(written.vocabulary, (4, 50), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        best = model(input_ids=ids).logits.argmax(-1)
    assert set(best.flatten().tolist()) <= set(said)


def test_checks_and_commands_are_told(target: Path, written: EngineDraft) -> None:
    assert written.said == SAID
    assert written.checks == (
        f"vocabulary of {written.vocabulary}, as the target's",
        "the target's tokens, special tokens and chat template",
    )
    assert set(written.launch) == {"vllm", "transformers"}
    given = written.launch["vllm"].split("--speculative-config ")[1].strip("'")
    assert json.loads(given) == {
        "method": "draft_model",
        "model": str(written.path),
        "num_speculative_tokens": 3,
    }
    assert f"vllm serve {target}" in written.launch["vllm"]
    assert AutoTokenizer.from_pretrained(written.path).chat_template


def test_a_whole_vocabulary_is_written_on_demand(target: Path, draft: Path, tmp_path: Path) -> None:
    whole = export_for_engines(target, draft, tmp_path / "whole", vocabulary=0, dtype="float32")
    assert whole.said == whole.vocabulary
    assert drafted(target, model=whole.path, vocabulary=0) == drafted(target, model=draft, vocabulary=0)


def test_a_draft_of_another_model_or_vocabulary_is_refused(draft: Path, target: Path, tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other", hidden_size=64)
    with pytest.raises(ValueError, match="trained for another model"):
        export_for_engines(other, draft, tmp_path / "draft")
    wide = save_tiny(tmp_path / "wide", vocab_size=400)
    with pytest.raises(UnsupportedModel, match=r"has a vocabulary of 400 and target one of \d+; vLLM's draft_model"):
        export_for_engines(target, wide, tmp_path / "draft")
    assert not (tmp_path / "draft").exists()


def test_options_that_do_not_fit_the_output_are_refused(target: Path, draft: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is there already"):
        export_for_engines(target, draft, tmp_path)
    with pytest.raises(UnsupportedOption, match="a GGUF file holds weights"):
        export_for_engines(target, draft, tmp_path / "a.gguf", dtype="float16")
    with pytest.raises(UnsupportedOption, match=r"name the output NAME.gguf"):
        export_for_engines(target, draft, tmp_path / "a", weights="f16")
    with pytest.raises(UnsupportedOption, match="name that file with --gguf-target"):
        export_for_engines(target, draft, tmp_path / "a.gguf")
    assert list(tmp_path.iterdir()) == []
