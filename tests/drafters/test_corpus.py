from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
import torch

import forerun
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.identity import Identity
from forerun.core.values import ROOT, Context, Draft, Round, Step, Verdict
from forerun.drafters.base import DRAFTERS, Parts
from forerun.drafters.corpora.files import build_corpus
from forerun.errors import ModelNotFound, UnsupportedOption
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.policies.base import confidence
from forerun.testing import tiny_model

from .test_suffix import steps

SIZE = 97
TEXTS = [[1, 2, 3, 4, 5, 6], [9, 2, 3, 7, 8], [20, 21, 30], [20, 21, 30], [20, 21, 40]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    build_corpus(TEXTS, tmp_path / "corpus", ("", SIZE))
    return tmp_path / "corpus"


def corpus(place: Path, vocabulary: str = "", **options: Any) -> Drafter:
    identity = Identity("llama", 4, 32, SIZE, "0" * 16, vocabulary)
    parts = Parts(SequencePool(HFRunner(tiny_model("llama"))), identity, None, lambda name: pytest.fail(name))
    return DRAFTERS.entry("corpus").build(parts, path=str(place), **options)(None)  # type: ignore[no-any-return]


def drafted(drafter: Drafter, *ids: int, most: int = 12) -> list[Step]:
    return steps(drafter, Context(list(ids), Seeded(0)), most)


def tokens(drafter: Drafter, *ids: int) -> list[int]:
    return [step.tokens[0] for step in drafted(drafter, *ids)]


def test_what_followed_the_longest_match_follows(place: Path) -> None:
    assert tokens(corpus(place, least=0.01), 50, 1, 2, 3) == [4, 5, 6]
    assert tokens(corpus(place, least=0.01), 9, 2, 3) == [7, 8]


def test_places_that_agree_outvote_another_one(place: Path) -> None:
    assert tokens(corpus(place), 20, 21)[:1] == [30]


def test_without_a_match_nothing_is_drafted(place: Path) -> None:
    assert tokens(corpus(place), 60) == []
    assert tokens(corpus(place), 6) == []


def test_tokens_are_chosen_and_chained_with_a_confidence_each(place: Path) -> None:
    found = drafted(corpus(place, least=0.01), 1, 2, 3)
    assert [(step.parents, step.laws, step.logits) for step in found[:2]] == [
        ((ROOT,), (None,), None),
        ((0,), (None,), None),
    ]
    assert all(0 < confidence(step) < 1 for step in found)


def test_a_corpus_that_was_sorted_in_pieces_answers_as_one(tmp_path: Path) -> None:
    build_corpus(TEXTS, tmp_path / "corpus", ("", SIZE), sorted_at_once=3)
    drafter = corpus(tmp_path / "corpus", least=0.01)
    assert tokens(drafter, 1, 2, 3) == [4, 5, 6]
    assert tokens(drafter, 9, 2, 3) == [7, 8]
    assert tokens(drafter, 20, 21)[:1] == [30]


def test_rejections_shorten_later_drafts(place: Path) -> None:
    drafter = corpus(place, least=0.3)
    before = len(drafted(drafter, 1, 2, 3))
    for _ in range(30):
        draft = Draft.of(drafted(drafter, 1, 2, 3))
        rows = Rows(torch.zeros(len(draft) + 1, 8), torch.zeros(len(draft) + 1, 4))
        drafter.learn(Context([1], Seeded(0)), Round((0,), draft, Verdict((), (0,)), 1), rows)
    assert len(drafted(drafter, 1, 2, 3)) < before


def test_a_corpus_of_another_tokenizer_ends_in_one_sentence(tmp_path: Path) -> None:
    build_corpus(TEXTS, tmp_path / "corpus", ("abc", SIZE))
    with pytest.raises(UnsupportedOption, match="is of another tokenizer"):
        corpus(tmp_path / "corpus", "xyz")


def test_a_path_without_a_corpus_ends_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no corpus at"):
        corpus(tmp_path)


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_least_out_of_range_is_refused_with_what_is_allowed(place: Path, least: float) -> None:
    with pytest.raises(ValueError, match=f"least must be above 0 and below 1, got {least}"):
        corpus(place, least=least)


def test_texts_do_not_depend_on_the_corpus(tmp_path: Path) -> None:
    model = tiny_model("llama")
    prompts = [[index % 7 + 1, 5, 6, 7, index % 3 + 1] for index in range(6)]
    plain = [result.ids for result in forerun.load(model).generate(prompts, max_new_tokens=12)]
    noise = np.random.default_rng(0).integers(0, SIZE, (4, 50)).tolist()
    answers = [[*prompt, *ids] for prompt, ids in zip(prompts, plain, strict=True)]
    for name, texts in (("noise", noise), ("answers", answers)):
        build_corpus(texts, tmp_path / name, ("", SIZE))
        engine = forerun.load(
            model, drafter="corpus", drafter_options={"path": str(tmp_path / name)}, policy_options={"k": 6}
        )
        found = engine.generate(prompts, max_new_tokens=12)
        assert [result.ids for result in found] == plain
        if name == "answers":
            assert sum(result.stats.accepted for result in found) > 12


def test_a_search_in_a_large_corpus_takes_microseconds(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    text = np.minimum(numbers.zipf(1.3, 300_000), SIZE - 1)
    build_corpus([text.tolist()], tmp_path / "corpus", ("", SIZE))
    drafter, spent = corpus(tmp_path / "corpus"), []
    for place in range(1000, 3000, 100):
        begun = process_time()
        drafted(drafter, *text[place : place + 32].tolist(), most=1)
        spent.append(process_time() - begun)
    # some 40 on a machine that is idle
    assert min(spent) < 400e-6
