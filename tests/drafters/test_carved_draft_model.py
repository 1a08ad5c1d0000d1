"""A draft model in smaller weights, and one that drafts among frequent tokens: the text stays the target's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import Engine, UnsupportedOption, load
from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.values import Context
from forerun.models.files.draft import DraftFile, write_draft

from .carving import PROMPTS, check_seeds, check_text, save_carvable

CARVED: tuple[dict[str, Any], ...] = (
    {"weights": "int8"},
    {"weights": "int4"},
    {"vocabulary": 60},
    {"weights": "int4", "vocabulary": 200},
)
RANKING = (97, 98, 120, 32, 5)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_carvable(tmp_path_factory.mktemp("carved") / "tiny")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft that says it learnt three tokens."""
    folder = save_carvable(tmp_path_factory.mktemp("trained") / "draft")
    write_draft(DraftFile(torch.tensor(RANKING), 3), folder)
    return folder


@pytest.fixture(scope="module")
def plain(directory: Path) -> Engine:
    return load(directory, runner="lean")


def drafting(plain: Engine, model: Path, **options: Any) -> Engine:
    return plain.using("draft_model", drafter_options={"model": str(model), **options}, policy_options={"k": 3})


def drafted(engine: Engine, prompt: str) -> set[int]:
    """The tokens of all drafts."""
    context = Context(engine.tokenizer(prompt).input_ids, Seeded(0), max_new_tokens=12)
    return {token for round in drive(engine.rounds(context)) for token in round.draft.tokens}


@pytest.mark.parametrize("options", CARVED, ids=str)
def test_a_carved_draft_model_leaves_the_text_as_it_is(plain: Engine, directory: Path, options: dict[str, Any]) -> None:
    engine = drafting(plain, directory, **options)
    check_text(plain, engine)


@pytest.mark.parametrize("options", CARVED, ids=str)
def test_seeded_sampling_is_the_same_alone_and_in_a_batch(
    plain: Engine, directory: Path, options: dict[str, Any]
) -> None:
    engine = drafting(plain, directory, **options)
    check_seeds(engine)


def test_a_model_in_8_bits_agrees_with_itself_nearly_always(plain: Engine, directory: Path) -> None:
    assert drafting(plain, directory, weights="int8").generate(PROMPTS[0], max_new_tokens=60).stats.acceptance > 0.7


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, {97, 98, 120}),
        ({"vocabulary": 2}, {97, 98}),
        ({"vocabulary": 7}, {97, 98, 120, 32, 5, 0, 1}),
    ],
)
def test_a_trained_draft_drafts_among_the_most_frequent_tokens_of_its_answers(
    plain: Engine, trained: Path, options: dict[str, int], allowed: set[int]
) -> None:
    found = set().union(*(drafted(drafting(plain, trained, **options), prompt) for prompt in PROMPTS))
    assert found
    assert found <= allowed


def test_vocabulary_0_takes_a_trained_drafts_whole_head(plain: Engine, trained: Path) -> None:
    found = set().union(*(drafted(drafting(plain, trained, vocabulary=0), prompt) for prompt in PROMPTS))
    assert not found <= set(RANKING)


def test_methods_to_compare_share_the_model_and_not_its_sequences(plain: Engine, directory: Path) -> None:
    whole, small = drafting(plain, directory), drafting(plain, directory, vocabulary=60)
    wanted = whole.generate(PROMPTS[0], max_new_tokens=20).ids
    for engine in (small, whole, small):
        assert engine.generate(PROMPTS[0], max_new_tokens=20).ids == wanted


def test_a_drafter_tells_what_it_drafts_in(plain: Engine, directory: Path, trained: Path) -> None:
    whole, small, learnt = (
        drafting(plain, model, **options).pair.drafter
        for model, options in ((directory, {}), (directory, {"weights": "int4", "vocabulary": 60}), (trained, {}))
    )
    assert small == f"{whole}, weights int4, 60 tokens"
    assert learnt.endswith(", 3 tokens")


@pytest.mark.parametrize("size", [-1, 261])
def test_a_vocabulary_out_of_range_is_refused(plain: Engine, directory: Path, size: int) -> None:
    with pytest.raises(ValueError, match=rf"a draft vocabulary must hold 1\.\.260 tokens, got {size}"):
        drafting(plain, directory, vocabulary=size)


def test_transformers_modules_can_not_be_carved(directory: Path, trained: Path) -> None:
    plain = load(directory, runner="hf")
    for options in ({"vocabulary": 5}, {"weights": "int8"}):
        with pytest.raises(UnsupportedOption, match="needs the lean runner"):
            drafting(plain, directory, **options)
    with pytest.raises(UnsupportedOption, match="needs the lean runner"):
        drafting(plain, trained)
    assert drafting(plain, trained, vocabulary=0).generate(PROMPTS[1], max_new_tokens=4).ids
