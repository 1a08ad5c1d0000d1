"""Drafts carved out of the target: small weights and a restricted vocabulary, alone and with left-out layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import Engine, UnsupportedOption, load
from forerun.core.drive import drive
from forerun.core.values import ROOT
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model, tiny_tokenizer

from .carving import PROMPTS, check_seeds, check_text, only_token_250, save_carvable

CARVED: tuple[dict[str, Any], ...] = (
    {"weights": "int8"},
    {"weights": "int4"},
    {"vocabulary": 60},
    {"weights": "int4", "vocabulary": 200},
    {"weights": "int8", "exit_layer": 2},
    {"exit_layer": 3, "vocabulary": 100},
    {"weights": "int4", "skip_attention": (1,), "skip_mlp": (2,), "vocabulary": 100},
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_carvable(tmp_path_factory.mktemp("carved") / "tiny")


@pytest.fixture(scope="module")
def plain(directory: Path) -> Engine:
    return load(directory, runner="lean")


@pytest.mark.parametrize("options", CARVED, ids=str)
def test_a_carved_draft_leaves_the_text_as_it_is(plain: Engine, options: dict[str, Any]) -> None:
    carved = plain.using("self", drafter_options=options, policy_options={"k": 3})
    check_text(plain, carved)


@pytest.mark.parametrize("options", CARVED, ids=str)
def test_seeded_sampling_is_the_same_alone_and_in_a_batch(plain: Engine, options: dict[str, Any]) -> None:
    carved = plain.using("self", drafter_options=options, policy_options={"k": 3})
    check_seeds(carved)


def test_a_copy_in_8_bits_agrees_with_the_target_nearly_always(plain: Engine) -> None:
    carved = plain.using("self", drafter_options={"weights": "int8"}, policy_options={"k": 4})
    assert carved.generate(PROMPTS[0], max_new_tokens=60).stats.acceptance > 0.7


def test_a_restricted_head_holds_the_most_frequent_tokens_of_the_text(
    plain: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("aaaa bbb cc d", encoding="utf-8")
    made: list[tuple[int, ...]] = []
    add_head = plain.runner.add_head
    monkeypatch.setattr(plain.runner, "add_head", lambda tokens: made.append(tuple(tokens)) or add_head(tokens))
    plain.using("self", drafter_options={"vocabulary": 3, "vocabulary_text": str(text)})
    frequent = {tiny_tokenizer()(letter).input_ids[0] for letter in "ab "}
    assert [set(tokens) for tokens in made] == [frequent]


def test_logits_outside_a_restricted_head_are_minus_infinity(plain: Engine) -> None:
    name = plain.runner.add_head([7, 3, 90])

    async def logits(plan: LayerPlan) -> Any:
        yield (await Sequence(plain.runner).forward([1, 2, 3], plan=plan)).logits

    whole, some = next(drive(logits(LayerPlan()))), next(drive(logits(LayerPlan(head=name))))
    assert torch.isfinite(some).nonzero()[:, 1].tolist() == [3, 7, 90] * 3
    assert torch.allclose(some[:, [3, 7, 90]], whole[:, [3, 7, 90]], atol=1e-5)


def test_rows_of_small_weights_are_never_resumed(plain: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.runner.add_weights("int4")
    plan = LayerPlan(frozenset({2, 3}), frozenset({2, 3}), exit_layer=2, weights="int4")
    ids, chain = [5, 6, 7, 8], range(ROOT, 3)

    async def completed(draft_first: bool) -> Any:
        sequence = Sequence(plain.runner)
        await sequence.sync([1, 2, 3])
        if draft_first:
            await sequence.forward(ids, plan=plan)
        yield (await sequence.complete(ids, chain)).logits

    fresh = next(drive(completed(draft_first=False)))
    assert torch.allclose(next(drive(completed(draft_first=True))), fresh, atol=1e-5)
    # the mistake that must show: going on from states of other weights
    monkeypatch.setattr(LayerPlan, "resumes_at", property(lambda self: self.exit_layer))
    assert not torch.allclose(next(drive(completed(draft_first=True))), fresh, atol=1e-2)


def test_a_vocabulary_that_the_processors_empty_ends_the_draft(plain: Engine) -> None:
    carved = plain.using("self", drafter_options={"vocabulary": 100})
    result = carved.generate(PROMPTS[0], max_new_tokens=5, processors=[only_token_250])
    assert set(result.ids) == {250}
    assert result.stats.drafted == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "int2"}, "unknown weights 'int2'"),
        ({"vocabulary": 100000}, "a draft vocabulary must hold 1..260 tokens, got 100000"),
        ({"vocabulary_text": "x.txt"}, "vocabulary_text needs vocabulary"),
        ({"vocabulary": 5, "vocabulary_text": "/no/such/file"}, "must be a readable text file, got /no/such/file"),
    ],
)
def test_bad_options_are_one_clear_sentence(plain: Engine, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plain.using("self", drafter_options=options)


@pytest.mark.parametrize("options", [{"weights": "int8"}, {"vocabulary": 10}])
def test_transformers_own_modules_are_not_carved(options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedOption, match="carving needs the lean runner"):
        load(tiny_model("llama"), drafter="self", drafter_options=options)
