"""A compact draft on its target's tables: it says what its layers say, and holds no table of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.errors import InvalidModelFile, UnsupportedModel
from forerun.models.files.compact_draft import CompactDraft
from forerun.models.lean.compact_runner import compact_runner
from forerun.models.lean.draft_weights import CompactSource
from forerun.models.lean.native.library import SWITCH, Library
from forerun.models.lean.runner import LeanRunner
from forerun.models.lean.weights import dense
from forerun.models.packed.runner import HFRunner, Runner
from forerun.models.packed.sequence import Sequence
from forerun.testing import VOCABULARY, tiny_draft, tiny_model

from ..running import finish, off, own_logits, text

WEIGHTS = ["int4", "int8"]


def tiny(family: str = "llama", **changes: Any) -> Any:
    return tiny_model(family, intermediate_size=64, **changes)


@cache
def base(kind: str, weights: str = "", family: str = "llama", tied: bool = False) -> Runner:
    model = tiny(family, tie_word_embeddings=tied)
    if kind == "hf":
        return HFRunner(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "off" if kind == "torch" else "")
        return LeanRunner.from_model(model, weights)


def whole(weights: str, family: str = "llama", tied: bool = False) -> CompactDraft:
    """Of every layer of the target, so that it says what the target says."""
    return tiny_draft(tiny(family, tie_word_embeddings=tied), (0, 1, 2, 3), weights)


def allowed(runner: Runner) -> float:
    """torch's small kernels round rows and scales to bfloat16."""
    return 1e-3 if runner.kernels.startswith("native") else 0.3


def logits(runner: Runner) -> Tensor:
    found: Tensor = finish(Sequence(runner).forward(text(12))).logits
    return found


def stood_for(weights: str, family: str = "llama") -> Any:
    """The target with layers that hold what the codes of a draft of all of them stand for."""
    model = tiny(family)
    draft = whole(weights, family)
    source = CompactSource(draft.tensors, torch.float32, torch.device("cpu"), 0.0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if source.has(name):
                parameter.copy_(dense(source.take(name)))
    return model


@pytest.mark.parametrize("kind", ["native", "torch", "hf"])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_draft_says_what_its_codes_stand_for(kind: str, weights: str) -> None:
    runner = compact_runner(whole(weights), base(kind))
    assert off(logits(runner), own_logits(stood_for(weights), text(12))) < allowed(runner)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma3_text", "granite", "olmo2", "phi3"])
def test_families_of_the_lean_decoder_have_drafts(family: str) -> None:
    runner = compact_runner(whole("int8", family), base("native", family=family))
    assert off(logits(runner), own_logits(stood_for("int8", family), text(12))) < allowed(runner)


def test_two_layers_are_those_two_layers() -> None:
    runner = compact_runner(tiny_draft(tiny(), (0, 3), "int8"), base("native"))
    model = stood_for("int8")
    del model.model.layers[1:3]
    model.config.num_hidden_layers = 2
    model.model.layers[1].self_attn.layer_idx = 1
    assert runner.num_layers == 2
    assert off(logits(runner), own_logits(model, text(12))) < allowed(runner)


@pytest.mark.parametrize("kind", ["native", "torch"])
@pytest.mark.parametrize("weights", ["", "int4", "int8", "bf16"])
def test_tables_lie_in_memory_once(kind: str, weights: str) -> None:
    target = base(kind, weights)
    assert isinstance(target, LeanRunner)
    runner = compact_runner(whole("int4"), target)
    assert runner.decoder.embedding is target.decoder.embedding
    assert runner.decoder.head is target.decoder.head
    assert isinstance(runner.native, Library) == isinstance(target.native, Library)


@pytest.mark.parametrize("tied", [True, False])
def test_on_transformers_modules_the_tables_are_the_models_own(tied: bool) -> None:
    target = base("hf", tied=tied)
    assert isinstance(target, HFRunner)
    runner = compact_runner(whole("int8", tied=tied), target)
    own = target.model.get_input_embeddings().weight
    assert runner.decoder.embedding.dense().data_ptr() == own.data_ptr()
    assert runner.decoder.head.dense().data_ptr() == target.model.get_output_embeddings().weight.data_ptr()
    assert "runs on torch's operations" in runner.kernels_reason


def test_where_kernels_run_it_reads_rows_in_the_bits_that_its_file_names() -> None:
    target = base("native")
    if not target.kernels.startswith("native"):
        pytest.skip("forerun was installed without a compiler")
    draft = whole("int4")
    for bits in (8, 16):
        runner = compact_runner(replace(draft, facts=replace(draft.facts, activations=bits)), target)
        assert runner.activations == bits
        assert runner.kernels.startswith("native")
    assert compact_runner(draft, base("torch")).activations is None


def test_a_head_of_few_tokens_is_small_where_the_targets_has_floats() -> None:
    runner = compact_runner(whole("int8"), base("native"))
    plain, small = runner.add_head([3, 5, 90]), runner.add_head([3, 5, 90], "int8")
    assert plain != small
    assert runner.restricted(small)[1].nbytes < runner.restricted(plain)[1].nbytes
    held = [runner.restricted(name)[1].dense().float() for name in (plain, small)]
    assert off(held[1], held[0]) < 0.02
    in_codes = compact_runner(whole("int8"), base("native", "int8"))
    assert torch.equal(
        in_codes.restricted(in_codes.add_head([3, 5], "int8"))[1].dense(),
        in_codes.restricted(in_codes.add_head([3, 5]))[1].dense(),
    )


def test_tables_of_another_shape_are_refused() -> None:
    other = LeanRunner.from_model(tiny_model("llama", vocab_size=120))
    with pytest.raises(UnsupportedModel, match=rf"reads embeddings of {VOCABULARY} x 32 and .* has 120 x 32"):
        compact_runner(whole("int4"), other)


def test_a_weight_too_few_or_too_many_is_named() -> None:
    draft = whole("int8")
    few = {name: value for name, value in draft.tensors.items() if "layers.2.mlp.up_proj" not in name}
    with pytest.raises(InvalidModelFile, match=r"lacks the weight model\.layers\.2\.mlp\.up_proj\.weight"):
        compact_runner(replace(draft, tensors=few), base("native"))
    many = {**draft.tensors, "model.layers.9.extra": torch.zeros(2)}
    with pytest.raises(InvalidModelFile, match=r"a weight model\.layers\.9\.extra that has no place"):
        compact_runner(replace(draft, tensors=many), base("native"))
