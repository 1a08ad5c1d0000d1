"""Draft models on native kernels: other vocabularies, a short context, cut widths; what isn't native says so."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

import pytest
import torch

from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.values import Context, Sampling, Step
from forerun.drafters.draft_model import ModelDraft
from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ..models.running import finish

pytestmark = pytest.mark.skipif(not processor_levels(), reason="forerun was installed without a compiler")
TARGET = 97  # tokens of the target


@cache
def draft(**changes: Any) -> LeanRunner:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1])
        return LeanRunner.from_model(tiny_model("llama", seed=2, **{"intermediate_size": 64, **changes}), "int4")


def made(runner: LeanRunner, plan: LayerPlan | None = None) -> Drafter:
    pool = SequencePool(runner, drafting=True, plan=plan or LayerPlan())
    return ModelDraft(pool, min(runner.vocab_size, TARGET), width=TARGET if runner.vocab_size < TARGET else None)


def steps(drafter: Drafter, ids: list[int], number: int, sampling: Sampling | None = None) -> list[Step]:
    return list(islice(drive(drafter.draft(Context(ids, Seeded(2), sampling or Sampling()))), number))


def drafted(drafter: Drafter, ids: list[int], number: int) -> list[int]:
    return [step.tokens[0] for step in steps(drafter, ids, number)]


def greedy(runner: LeanRunner, ids: list[int], number: int, shared: int, plan: LayerPlan | None = None) -> list[int]:
    """What the draft model writes, every text computed anew."""
    ids = list(ids)
    for _ in range(number):
        rows = finish(Sequence(runner, plan=plan or LayerPlan()).sync(ids))
        ids.append(int(rows.logits[0, :shared].argmax()))
    return ids[-number:]


@pytest.mark.parametrize("vocab", [20, 97, 500])
def test_whatever_tokens_it_has_it_drafts_its_own_greedy_text(vocab: int) -> None:
    runner = draft(vocab_size=vocab)
    assert runner.kernels.startswith("native")
    shared = min(vocab, TARGET)
    assert drafted(made(runner), [5, 6, 7], 5) == greedy(runner, [5, 6, 7], 5, shared)
    assert steps(made(runner), [5, 6, 7], 1)[0].logits.shape == (1, shared)  # type: ignore[union-attr]


def test_a_token_that_it_does_not_have_is_read_as_another() -> None:
    runner = draft(vocab_size=20)
    assert drafted(made(runner), [5, 60, 7, 96], 3) == greedy(runner, [5, 0, 7, 0], 3, 20)


@pytest.mark.parametrize("weights", ["", "int8"])
def test_a_restricted_head_and_second_weights_draft_natively(weights: str) -> None:
    runner = draft(vocab_size=97)
    some = [3, 5, 9, 40, 41, 80]
    if weights:
        runner.add_weights(weights)
    plan = LayerPlan(weights=weights, head=runner.add_head(some))
    tokens = drafted(made(runner, plan), [5, 6, 7], 6)
    assert tokens == greedy(runner, [5, 6, 7], 6, 97, plan)
    assert set(tokens) <= set(some)


def test_sampled_tokens_follow_the_laws_of_the_same_rows_alone() -> None:
    runner, sampling = draft(vocab_size=97), Sampling(temperature=0.8, top_k=20)
    chain = steps(made(runner), [5, 6, 7], 4, sampling)
    text = [5, 6, 7]
    for step in chain:
        rows = finish(Sequence(runner).sync(text))
        assert step.logits is not None
        assert torch.equal(step.logits, rows.logits)
        text.append(step.tokens[0])


def test_drafting_ends_where_its_context_does() -> None:
    short = draft(max_position_embeddings=6)
    assert len(steps(made(short), [5, 6, 7, 8], 10)) == 3
    assert steps(made(short), list(range(1, 8)), 10) == []


@pytest.mark.parametrize("inner", [64, 96])
def test_a_draft_of_other_widths_than_its_target_is_native_too(inner: int) -> None:
    runner = draft(hidden_size=64, intermediate_size=inner, num_hidden_layers=1, num_attention_heads=2, head_dim=16)
    assert runner.kernels.startswith("native")
    assert drafted(made(runner), [5, 6, 7], 4) == greedy(runner, [5, 6, 7], 4, 97)


def test_widths_without_whole_groups_run_on_torch_and_say_why() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1])
        runner = LeanRunner.from_model(tiny_model("llama", hidden_size=48, intermediate_size=64), "int8")
    assert runner.kernels == "torch"
    assert runner.kernels_reason
    assert drafted(made(runner), [5, 6, 7], 3) == greedy(runner, [5, 6, 7], 3, 97)
