"""The lean decoder gives what transformers' modules give: packed, resumed, in trees, under plans, in every family.

Here on torch's operations, in native/ in native steps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from forerun.core.chance import Seeded
from forerun.core.decode import decode
from forerun.core.drive import Batch
from forerun.core.values import ROOT, Context
from forerun.drafters.lookup import Lookup
from forerun.drafters.none import NoDraft
from forerun.drafters.self_draft import SelfDraft
from forerun.errors import UnsupportedModel, UnsupportedOption
from forerun.models.lean.attention import BLOCK
from forerun.models.lean.layers import Layer
from forerun.models.lean.linear import Reordered
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.runner import LeanRunner
from forerun.models.lean.shape import FAMILIES, lean_applies
from forerun.models.lean.weights import quantise_int4, quantise_int8
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.policies.fixed import Fixed
from forerun.testing import tiny_model

from ..running import chain, finish, own_logits, text, together

LENGTHS = (21, 40)
NEW = 16
CLOSE = 1e-5
EXIT = LayerPlan.early_exit(2, 4)
SKIP = LayerPlan.skip(4, attention=(1, 2), mlp=(2,))


@pytest.fixture(autouse=True)
def on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")


def off(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The root mean square difference as a share of the spread. Single values of either are up to 3e-5 from float64."""
    return float((actual - expected).pow(2).mean().sqrt() / expected.std())


@cache
def lean(family: str) -> LeanRunner:
    return LeanRunner.from_model(tiny_model(family))


@cache
def hf(family: str) -> HFRunner:
    return HFRunner(tiny_model(family))


def written(runner: Any, kind: str) -> list[list[int]]:
    """The texts that two prompts in one batch become."""
    prompts = [text(length, seed) for seed, length in enumerate(LENGTHS)]
    batch: Batch[int, Any] = Batch()
    contexts = [Context(list(prompt), Seeded(0), max_new_tokens=NEW) for prompt in prompts]
    for key, context in enumerate(contexts):
        sequence = Sequence(runner)
        drafters = {"none": NoDraft(), "lookup": Lookup(3, 1), "exit": SelfDraft(sequence, EXIT)}
        drafters["coarse"] = SelfDraft(sequence, replace(EXIT if key else SKIP, activations=8))
        drafter = drafters.get(kind) or SelfDraft(sequence, SKIP)
        batch.add(key, decode(sequence, drafter, Fixed(3), context))
    assert all(event.error is None for event in batch.run())
    return [context.ids for context in contexts]


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_texts_equal_the_models_own_forward(family: str) -> None:
    texts = [text(length, seed) for seed, length in enumerate(LENGTHS)]
    sequences = [Sequence(lean(family)) for _ in texts]
    rows = together(*(one.complete(ids, chain(len(ids))) for one, ids in zip(sequences, texts, strict=True)))
    for ids, got in zip(texts, rows, strict=True):
        assert off(got.logits, own_logits(tiny_model(family), ids)) < CLOSE


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("plan", [FULL, EXIT, SKIP], ids=["full", "exit", "skip"])
def test_plans_equal_transformers_modules_after_a_prefix(family: str, plan: LayerPlan) -> None:
    def drafted(runner: Any) -> Any:
        sequence = Sequence(runner)
        finish(sequence.sync(text(19)))
        first = finish(sequence.forward(text(3, 1), plan=plan, taps=frozenset({1})))
        return first, finish(sequence.forward(text(1, 2), plan=plan))

    for ours, theirs in zip(drafted(lean(family)), drafted(hf(family)), strict=True):
        assert off(ours.logits, theirs.logits) < CLOSE
        assert off(ours.hidden, theirs.hidden) < CLOSE
        for layer, states in theirs.taps.items():
            assert off(ours.taps[layer], states) < CLOSE


@pytest.mark.parametrize("family", FAMILIES)
def test_trees_equal_each_path_alone(family: str) -> None:
    tokens, parents = text(6, 3), [ROOT, 0, 0, 1, 2, ROOT]
    sequence = Sequence(lean(family))
    finish(sequence.sync(text(17)))
    rows = finish(sequence.complete(tokens, parents))
    for node in range(len(tokens)):
        path: list[int] = []
        at = node
        while at != ROOT:
            path.insert(0, tokens[at])
            at = parents[at]
        assert off(rows.logits[node], own_logits(tiny_model(family), [*text(17), *path])[-1]) < CLOSE


@pytest.mark.parametrize("family", FAMILIES)
def test_resumed_rows_equal_a_fresh_forward(family: str) -> None:
    drafted, more = text(4, 5), text(2, 6)
    sequence, neighbour = Sequence(lean(family)), Sequence(lean(family))
    together(sequence.sync(text(13)), neighbour.sync(text(30, 1)))
    finish(sequence.forward(drafted, plan=EXIT))
    ids = [*drafted, *more]
    rows, other = together(sequence.complete(ids, chain(6)), neighbour.complete(text(5, 2), chain(5)))
    assert off(rows.logits, own_logits(tiny_model(family), [*text(13), *ids])[13:]) < CLOSE
    assert off(other.logits, own_logits(tiny_model(family), [*text(30, 1), *text(5, 2)])[30:]) < CLOSE


def test_resumed_rows_do_not_pass_the_layers_below_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = LeanRunner.from_model(tiny_model("llama"))
    sequence = Sequence(runner)
    finish(sequence.sync(text(5)))
    finish(sequence.forward(text(3, 1), plan=EXIT))
    passed: dict[int, int] = {}
    layer_type = type(runner._layers[""][0])
    feed = layer_type.feed

    def counted(layer: Any, x: torch.Tensor, stage: Any) -> None:
        passed[layer.index] = len(x)
        feed(layer, x, stage)

    monkeypatch.setattr(layer_type, "feed", counted)
    finish(sequence.complete([*text(3, 1), 9], chain(4)))
    assert passed == {0: 1, 1: 1, 2: 4, 3: 4}


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_equals_transformers_modules_for_every_draft(family: str) -> None:
    wanted = written(hf(family), "none")
    for kind in ("none", "lookup", "exit", "skip"):
        assert written(lean(family), kind) == wanted


def test_prompts_longer_than_a_block_of_rows_equal_the_models_own_forward() -> None:
    for family in ("llama", "mistral", "gemma3_text"):
        sequence, neighbour = Sequence(lean(family)), Sequence(lean(family))
        ids = text(BLOCK + 70)
        long, short = together(sequence.complete(ids, chain(len(ids))), neighbour.complete(text(30, 1), chain(30)))
        assert off(long.logits, own_logits(tiny_model(family), ids)) < CLOSE
        assert off(short.logits, own_logits(tiny_model(family), text(30, 1))) < CLOSE


def test_a_wide_tree_after_more_rows_than_a_block_is_right() -> None:
    sequence = Sequence(lean("llama"))
    parents = [*chain(BLOCK - 2), *[BLOCK - 3] * 6]
    tokens = text(len(parents), 4)
    rows = finish(sequence.complete(tokens, parents))
    for node in range(BLOCK - 2, len(parents)):
        path = [*tokens[: BLOCK - 2], tokens[node]]
        assert off(rows.logits[node], own_logits(tiny_model("llama"), path)[-1]) < CLOSE


def in_small_weights(model: Any, weights: str) -> Any:
    """The model with its matrices where the grid puts them."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim != 2:
                continue
            table = "embed_tokens" in name or "lm_head" in name
            quantise = quantise_int8 if table or weights == "int8" else quantise_int4
            parameter.copy_(quantise(parameter).dense())
    return model


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "phi3", "gemma3_text", "olmo2"])
@pytest.mark.parametrize(("weights", "kernels"), [("int8", "off"), ("int4", "off"), ("int4", "avx512")])
def test_small_weights_are_the_same_model_on_a_grid(
    family: str, weights: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, kernels)
    shape = {"intermediate_size": 64}
    ids = text(24)
    expected = own_logits(in_small_weights(tiny_model(family, **shape), weights), ids)
    runner = LeanRunner.from_model(tiny_model(family, **shape), weights)
    assert off(finish(Sequence(runner).forward(ids)).logits, expected) < 0.03
    if weights == "int4":
        assert off(own_logits(tiny_model(family, **shape), ids), expected) > 0.1


@pytest.mark.parametrize(
    ("weights", "kernels"), [("bf16", "off"), ("int8", "off"), ("int4", "off"), ("int4", "avx512")]
)
def test_greedy_text_in_small_weights_is_the_same_for_every_draft(
    weights: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, kernels)
    runner = LeanRunner.from_model(tiny_model("llama", intermediate_size=64), weights)
    wanted = written(runner, "none")
    for kind in ("lookup", "exit", "skip"):
        assert written(runner, kind) == wanted


def test_activations_are_refused_without_native_kernels_and_with_the_reason() -> None:
    runner = lean("llama")
    assert runner.activations is None
    for asked in (lambda: runner.use_activations(16), lambda: runner.check_plan(LayerPlan(activations=8))):
        with pytest.raises(UnsupportedOption, match=r"doesn't run there \(.+\); leave the option out"):
            asked()
    with pytest.raises(UnsupportedOption, match="in 8 or 16 bits, got 4"):
        runner.use_activations(4)


def test_a_row_is_the_same_whatever_stands_beside_it() -> None:
    sequence, other = Sequence(lean("llama")), Sequence(lean("llama"))
    finish(sequence.sync(text(20)))
    finish(other.sync(text(20)))
    alone = finish(sequence.forward(text(1, 1))).logits[0]
    among = finish(other.forward(text(1, 1) + text(7, 2))).logits[0]
    assert off(among, alone) < 2e-6


def test_the_model_is_emptied_and_held_once() -> None:
    model = tiny_model("llama")
    held = sum(parameter.nbytes for name, parameter in model.named_parameters() if "norm" not in name)
    runner = LeanRunner.from_model(model)
    assert sum(parameter.nbytes for parameter in model.parameters()) == 0
    assert runner.nbytes == held


def test_tied_embeddings_are_one_table_in_small_weights_and_a_table_with_a_reordered_copy_in_dense_ones() -> None:
    model = tiny_model("llama", tie_word_embeddings=True)
    own = own_logits(model, text(9))
    runner = LeanRunner.from_model(model)
    assert off(finish(Sequence(runner).forward(text(9))).logits, own) < CLOSE
    copied = Reordered.applies(torch.float32, torch.device("cpu"))
    assert (runner.nbytes == lean("llama").nbytes) == copied

    small = LeanRunner.from_model(tiny_model("llama", tie_word_embeddings=True), "int8")
    untied = LeanRunner.from_model(tiny_model("llama", tie_word_embeddings=False), "int8")
    assert small.nbytes < untied.nbytes


@pytest.mark.parametrize("scaling", ["linear", "llama3", "yarn"])
def test_rotary_scalings_that_do_not_depend_on_the_text_are_right(scaling: str) -> None:
    parameters: dict[str, Any] = {"rope_type": scaling, "factor": 4.0, "rope_theta": 10000.0}
    if scaling != "linear":
        parameters["original_max_position_embeddings"] = 16
    if scaling == "llama3":
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model = tiny_model("llama", rope_parameters=parameters)
    own = own_logits(model, text(40))
    assert off(finish(Sequence(LeanRunner.from_model(model)).forward(text(40))).logits, own) < CLOSE


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("gpt2", {}, "gpt2 is not among the families of the lean decoder: llama, "),
        ("llama", {"hidden_act": "relu"}, "its activation is relu; the lean decoder knows silu"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "its rotary scaling dynamic depends on the length of the text",
        ),
    ],
)
def test_what_does_not_fit_is_said(family: str, changes: dict[str, Any], reason: str) -> None:
    model = tiny_model(family, **changes)
    assert reason in (lean_applies(model.config) or "")
    with pytest.raises(UnsupportedModel, match="the lean decoder can't run this model"):
        LeanRunner.from_model(model)


def test_a_parameter_that_has_no_place_is_refused() -> None:
    model = tiny_model("llama")
    model.model.layers[1].mlp.extra = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(UnsupportedModel, match=r"doesn't know what model\.layers\.1\.mlp\.extra is for"):
        LeanRunner.from_model(model)


def test_unknown_weights_are_refused_before_the_model_is_emptied() -> None:
    model = tiny_model("llama")
    with pytest.raises(UnsupportedOption, match="unknown weights 'int3'; known: float32, bf16, int8, int4"):
        LeanRunner.from_model(model, "int3")
    assert sum(parameter.nbytes for parameter in model.parameters()) > 0


@pytest.mark.parametrize("plan", [LayerPlan(weights="int8"), LayerPlan(head="of 3 tokens (dc255419)")])
def test_plans_that_name_what_was_not_added_are_refused(plan: LayerPlan) -> None:
    runner = LeanRunner.from_model(tiny_model("llama"))
    with pytest.raises(UnsupportedOption, match=r"holds no (weights 'int8'|head 'of 3 tokens .*'); add them"):
        runner.check_plan(plan)
    runner.add_weights("int8")
    assert runner.add_head([9, 1, 5]) == runner.add_head([1, 5, 9]) == "of 3 tokens (dc255419)"
    runner.check_plan(plan)


def test_a_sequence_of_another_runner_is_refused() -> None:
    sequence = Sequence(hf("llama"))
    sequence.runner = lean("llama")
    with pytest.raises(UnsupportedModel, match="made for another runner"):
        finish(sequence.sync([1, 2]))


@pytest.mark.parametrize("family", FAMILIES)
def test_its_embedding_and_head_are_the_models(family: str) -> None:
    ids = torch.tensor([3, 96, 3])
    assert torch.equal(lean(family).embed(ids), tiny_model(family).get_input_embeddings().weight[ids])
    rows = finish(Sequence(lean(family)).forward(text(9)))
    assert off(lean(family).head(rows.hidden), rows.logits) < CLOSE


def test_a_restricted_head_reads_its_tokens_only() -> None:
    runner = LeanRunner.from_model(tiny_model("llama"))
    rows = finish(Sequence(runner).forward(text(5)))
    name = runner.add_head([9, 3, 40, 9])
    logits = runner.head(rows.hidden, name)
    assert logits[0].isfinite().nonzero().flatten().tolist() == [3, 9, 40]
    assert off(logits[:, [3, 9, 40]], rows.logits[:, [3, 9, 40]]) < CLOSE
    assert runner.add_head([3, 9, 40]) == name


def test_further_weights_are_made_by_one_thread_and_the_others_are_there_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = LeanRunner.from_model(tiny_model("llama", intermediate_size=64))
    before, seen = torch.get_num_threads(), []
    made = Layer.in_weights

    def counting(self: Layer, *given: Any) -> Layer:
        seen.append(torch.get_num_threads())
        return made(self, *given)

    monkeypatch.setattr(Layer, "in_weights", counting)
    runner.add_weights("int4")
    assert seen == [1] * runner.num_layers
    assert torch.get_num_threads() == before
    with pytest.raises(UnsupportedOption):
        runner.add_weights("int3")
    assert torch.get_num_threads() == before
