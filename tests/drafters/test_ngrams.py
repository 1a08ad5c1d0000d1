from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import forerun
from forerun import Engine
from forerun.core.identity import identity_of
from forerun.errors import ModelNotFound, UnsupportedOption
from forerun.models.files.ngrams import NgramFile, write_ngrams
from forerun.testing import tiny_model
from forerun.train.data.examples import Example
from forerun.train.ngrams.table import build_table

PROMPTS = [[number % 7 + 1, 6, 7, number % 3 + 1] for number in range(12)]
NEW = 24


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def plain(target: Any) -> list[tuple[int, ...]]:
    return [result.ids for result in forerun.load(target, drafter="none").generate(PROMPTS, max_new_tokens=NEW)]


@pytest.fixture(scope="module")
def table(target: Any, plain: list[tuple[int, ...]]) -> NgramFile:
    answers = [Example((*prompt, *ids), len(prompt)) for prompt, ids in zip(PROMPTS, plain, strict=True)]
    counted, _ = build_table(answers, identity_of(target, None), held_out=0.4)
    # answers of a random model have little in common, so held-out ones say that nothing is likely
    return replace(counted, likely=torch.full_like(counted.likely, 200))


@pytest.fixture(scope="module")
def place(table: NgramFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "counted"
    write_ngrams(table, folder)
    return folder


def drafting(target: Any, place: Path | str, **options: Any) -> Engine:
    given = {"table": str(place), **options}
    return forerun.load(target, drafter="ngrams", drafter_options=given, policy="fixed", policy_options={"k": 4})


def test_texts_that_the_table_was_counted_in_are_drafted_and_stay_plain_decodings(
    target: Any, plain: list[tuple[int, ...]], place: Path
) -> None:
    results = drafting(target, place).generate(PROMPTS, max_new_tokens=NEW)

    assert [result.ids for result in results] == plain
    tokens = sum(len(result.ids) for result in results)
    assert tokens > 1.2 * sum(result.stats.rounds for result in results)


def test_other_texts_may_be_drafted_wrongly_and_stay_plain_decodings(target: Any, place: Path) -> None:
    others = [[9, 8, number + 1] for number in range(6)]
    wanted = forerun.load(target, drafter="none").generate(others, max_new_tokens=NEW)

    assert [one.ids for one in drafting(target, place).generate(others, max_new_tokens=NEW)] == [
        one.ids for one in wanted
    ]


def test_a_draft_ends_where_the_whole_of_it_is_less_likely_than_asked(target: Any, place: Path) -> None:
    def drafted(least: float) -> int:
        results = drafting(target, place, least=least).generate(PROMPTS, max_new_tokens=NEW)
        return sum(result.stats.drafted for result in results)

    assert drafted(0.99) < drafted(0.01)


def test_sampled_texts_are_those_of_the_seed(target: Any, place: Path) -> None:
    sampled: dict[str, Any] = {"max_new_tokens": NEW, "temperature": 1.0, "seed": 5}
    wanted = forerun.load(target, drafter="none").generate(PROMPTS[0], **sampled)

    assert drafting(target, place).generate(PROMPTS[0], **sampled).ids == wanted.ids


@pytest.mark.parametrize("least", [0.0, 1.0, -0.5])
def test_a_draft_must_be_able_to_end(target: Any, place: Path, least: float) -> None:
    with pytest.raises(ValueError, match=f"least must be above 0 and below 1, got {least}"):
        drafting(target, place, least=least)


def test_a_table_that_is_not_there_is_named(target: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no n-gram table at .*nowhere"):
        drafting(target, tmp_path / "nowhere")


def test_a_table_of_another_vocabulary_is_refused(target: Any, place: Path) -> None:
    with pytest.raises(UnsupportedOption, match="the n-gram table is of another tokenizer"):
        drafting(tiny_model("llama", vocab_size=50), place)
