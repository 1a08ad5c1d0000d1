"""Native steps in every form of weights, and in two forms at once: right, and a row's bits the same in any company."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.core.values import ROOT
from forerun.models.lean.native.dense import Dense
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.runner import LeanRunner
from forerun.models.lean.weights import quantise_int4, quantise_int8
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ...running import chain, finish, own_logits, text, together
from ..test_runner import off, written
from .kernels import FAMILIES, LEVELS, native, needs_kernels
from .test_step import alone

pytestmark = needs_kernels
FORMS = ("float32", "bf16", "int8", "int4")
DENSE = FORMS[:2]
# of logits against float arithmetic on what the weights stand for
CLOSE = {"float32": 1e-5, "bf16": 1e-5, "int8": 5e-4, "int4": 5e-4}


def on_grid(weight: Tensor, form: str) -> Tensor:
    """What the weights are once they are held in this form."""
    if form == "bf16":
        return weight.bfloat16().float()
    if form in ("int8", "int4"):
        return (quantise_int8 if form == "int8" else quantise_int4)(weight).dense()
    return weight


def model_in(family: str, form: str, second: str = "", width: int = 64) -> Any:
    """A float32 model with its matrices where the form puts them, and its layers where second weights put these."""
    model = tiny_model(family, intermediate_size=width)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim != 2:
                continue
            if "embed_tokens" in name or "lm_head" in name:
                parameter.copy_(on_grid(parameter, "int8" if form == "int4" else form))
            else:
                parameter.copy_(on_grid(on_grid(parameter, form), second))
    return model


@cache
def paired(form: str) -> LeanRunner:
    """A model in this form that holds all forms as second weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, LEVELS[-1])
        runner = LeanRunner.from_model(tiny_model("qwen2", intermediate_size=64), form)
    for second in FORMS:
        runner.add_weights(second)
    return runner


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", DENSE)
def test_it_computes_every_family(family: str, form: str) -> None:
    ids = text(40)
    rows = finish(Sequence(native(family, weights=form)).complete(ids, chain(40)))
    assert off(rows.logits, own_logits(model_in(family, form, width=48), ids)) < CLOSE[form]


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "olmo2"])
def test_int8_models_are_computed_too(family: str) -> None:
    ids = text(24)
    rows = finish(Sequence(native(family, weights="int8")).complete(ids, chain(24)))
    assert off(rows.logits, own_logits(model_in(family, "int8"), ids)) < CLOSE["int8"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("form", DENSE)
def test_it_computes_on_every_instruction_set(level: str, form: str) -> None:
    ids = text(20)
    rows = finish(Sequence(native("qwen3", level, form)).complete(ids, chain(20)))
    assert off(rows.logits, own_logits(model_in("qwen3", form, width=48), ids)) < CLOSE[form]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", DENSE)
def test_a_row_has_the_same_bits_alone_in_chains_and_in_prefill(family: str, form: str) -> None:
    runner, prefix, tokens = native(family, weights=form), text(70), text(16, 3)
    wanted = torch.stack(alone(runner, prefix, tokens))
    whole = finish(Sequence(runner).complete([*prefix, *tokens], chain(86))).logits[70:]
    assert torch.equal(whole, wanted)
    for n in (2, 3, 5, 6, 7, 13):
        sequence = Sequence(runner)
        finish(sequence.sync(prefix))
        assert torch.equal(finish(sequence.complete(tokens[:n], chain(n))).logits, wanted[:n])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("form", ["float32", "bf16", "int8"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("terms", [1, 2])
def test_a_trees_path_in_a_batch_has_the_bits_of_plain_decoding(
    level: str, form: str, threads: int, terms: int
) -> None:
    runner, prefix = native("gemma3_text", level, form), text(13, 2)
    assert runner._step is not None
    before, runner._step.terms = torch.get_num_threads(), terms
    torch.set_num_threads(threads)
    try:
        wanted = torch.stack(alone(runner, prefix, text(3, 5)))
        first, second, third = text(3, 5)
        sequence, neighbour = Sequence(runner), Sequence(runner)
        together(sequence.sync(prefix), neighbour.sync(text(20, 7)))
        parents, nodes = [ROOT, ROOT, 1, 0, 1, 4, 4], [1, 4, 6]
        tokens = [9, first, 8, 7, second, 6, third]
        rows, _ = together(sequence.complete(tokens, parents), neighbour.complete(text(5, 8), [ROOT, 0, 0, 1, 2]))
        assert torch.equal(rows.logits[nodes], wanted)
    finally:
        torch.set_num_threads(before)
        runner._step.terms = 2


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_float32_text_is_that_of_transformers_modules_for_every_draft(family: str) -> None:
    wanted = written(HFRunner(tiny_model(family)), "none")
    for kind in ("none", "lookup", "exit", "skip"):
        assert written(native(family, weights="float32"), kind) == wanted


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("second", FORMS)
def test_second_weights_of_any_form_run_over_a_model_of_any_other(form: str, second: str) -> None:
    runner, plan = paired(form), LayerPlan(weights=second)
    expected = own_logits(model_in("qwen2", form, second), text(26))
    sequence = Sequence(runner)
    rows = finish(sequence.forward(text(26), plan=plan)).logits
    assert off(rows, expected) < max(CLOSE[form], CLOSE[second])
    # drafted one by one after the same prefix, and a restricted head on top
    sequence.drop()
    name = runner.add_head([3, 9, 40])
    drafted = [finish(sequence.forward([token], plan=plan)).logits for token in text(26)[:7]]
    assert torch.equal(torch.cat(drafted), rows[:7])
    some = finish(sequence.forward(text(26)[7:8], plan=LayerPlan(weights=second, head=name))).logits
    assert torch.equal(some[0, [3, 9, 40]], rows[7, [3, 9, 40]])


@pytest.mark.parametrize("form", FORMS)
def test_second_weights_leave_the_models_own_rows_as_they_are(form: str) -> None:
    runner = paired(form)
    wanted = finish(Sequence(runner).complete(text(9), chain(9))).logits
    sequence = Sequence(runner)
    for second in FORMS:
        finish(sequence.forward(text(5, 1), plan=LayerPlan(weights=second)))
        sequence.drop()
    assert torch.equal(finish(sequence.complete(text(9), chain(9))).logits, wanted)


@pytest.mark.parametrize("form", DENSE)
def test_a_tied_head_is_the_embedding_itself(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, LEVELS[-1])
    runner = LeanRunner.from_model(tiny_model("llama", tie_word_embeddings=True), form)
    assert isinstance(runner._decoder.head, Dense)
    assert runner._decoder.head is runner._decoder.embedding
    rows = finish(Sequence(runner).complete(text(9), chain(9)))
    assert torch.equal(runner.head(rows.hidden), rows.logits)


def test_a_model_in_its_own_type_is_held_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, LEVELS[-1])
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model("llama").to(dtype)
        held = sum(parameter.nbytes for parameter in model.parameters() if parameter.ndim == 2)
        runner = LeanRunner.from_model(model)
        assert runner.kernels == f"native {LEVELS[-1]}"
        assert runner.same_bits
        assert runner.dtype == dtype
        # 97 tokens fill seven blocks of 16
        assert runner.nbytes == held + 2 * 15 * 32 * dtype.itemsize


def test_a_float16_model_says_why_it_runs_on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, LEVELS[-1])
    runner = LeanRunner.from_model(tiny_model("llama").half())
    assert not runner.same_bits
    assert runner.kernels_reason == "the native step holds floats in float32 and bfloat16 and the model's are float16"
