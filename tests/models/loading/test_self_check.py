"""The check at load: right models pass cheaply, and every kind of wrong one is noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from forerun.errors import UnsupportedModel
from forerun.models.loading.self_check import self_check
from forerun.models.packed import attention
from forerun.models.packed import runner as runner_module
from forerun.models.packed.forward import Packed, Part
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.store import LayerStore
from forerun.testing import FAMILIES, tiny_model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_supported_families_pass_in_every_dtype(family: str, dtype: torch.dtype) -> None:
    model = tiny_model(family).to(dtype)
    runner = HFRunner(model)
    self_check(runner, model)
    if family != "opt":
        runner.check_plan(LayerPlan.early_exit(2, 4))


def test_a_model_of_one_layer_passes() -> None:
    model = tiny_model("llama", num_hidden_layers=1)
    self_check(HFRunner(model), model)


@pytest.mark.parametrize(("family", "implementation"), [("gemma2", "eager"), ("llama", "eager"), ("llama", "sdpa")])
def test_the_models_own_attention_is_the_reference(family: str, implementation: str) -> None:
    model = tiny_model(family)
    model.set_attn_implementation(implementation)
    self_check(HFRunner(model), model)
    assert model.config._attn_implementation == implementation


def test_a_model_in_training_is_checked_without_dropout_and_stays_in_training() -> None:
    model = tiny_model("gpt2", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5).train()
    self_check(HFRunner(model), model)
    assert all(module.training for module in model.modules())


def test_the_check_draws_nothing_from_torchs_generator() -> None:
    model = tiny_model("llama")
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    self_check(HFRunner(model), model)
    assert torch.equal(torch.rand(3), expected)


def test_the_check_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    runner = HFRunner(model)
    rows: list[int] = []
    execute = HFRunner.execute

    def counted(self, requests):
        rows.append(sum(len(request.tokens) for request in requests))
        return execute(self, requests)

    monkeypatch.setattr(HFRunner, "execute", counted)
    self_check(runner, model)
    assert len(rows) == 4
    assert sum(rows) <= 24


def patched_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(query, *args, **options):
        return F.scaled_dot_product_attention(query * 1.5, *args, **options)

    monkeypatch.setattr(attention, "F", SimpleNamespace(scaled_dot_product_attention=scaled))


def patched_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = runner_module.layout

    def by_rows(requests, device):
        ids, _, wanted = layout(requests, device)
        return ids, torch.arange(len(ids)), wanted

    monkeypatch.setattr(runner_module, "layout", by_rows)


def patched_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Part, "bias", lambda self, pattern, idle, like: None)


def patched_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    write = LayerStore.write
    monkeypatch.setattr(
        LayerStore, "write", lambda self, layer, slot, keys, values: write(self, layer, max(slot - 1, 0), keys, values)
    )


def patched_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packed, "bring_entries", lambda self, hidden: hidden)


def patched_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    gather = runner_module.gather

    def swapped(hidden, logits, packed, requests):
        return gather(hidden, logits.flip(0), packed, requests)

    monkeypatch.setattr(runner_module, "gather", swapped)


MUTANTS = [patched_scaling, patched_positions, patched_masks, patched_slots, patched_entries, patched_parts]


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wrong_packed_forward_is_noticed(monkeypatch, mutant: Callable[..., None], dtype: torch.dtype) -> None:
    model = tiny_model("llama").to(dtype)
    runner = HFRunner(model)
    mutant(monkeypatch)
    with pytest.raises(
        UnsupportedModel, match=r"LlamaForCausalLM(: the packed forward is off by [0-9.e-]+|.* can't run packed)"
    ):
        self_check(runner, model)


def test_other_weights_are_noticed() -> None:
    model = tiny_model("llama")
    with pytest.raises(UnsupportedModel, match=r"the packed forward is off by 1\.\d"):
        self_check(HFRunner(tiny_model("llama", seed=1)), model)


class Bypassing(torch.nn.Module):
    """An attention of its own, in front of which transformers' interface has no say."""

    def forward(self, hidden_states, **others):
        return hidden_states * 0.5, None


def test_a_layer_with_an_attention_of_its_own_is_named() -> None:
    model = tiny_model("llama")
    model.model.layers[2].self_attn = Bypassing()
    with pytest.raises(
        UnsupportedModel, match="LlamaForCausalLM: layers 2 have an attention of their own or recurrent state"
    ):
        self_check(HFRunner(model), model)


class Recurrent(torch.nn.Module):
    """Something between the layers that remembers rows: shifted by one, as a convolution would."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden_states):
        return self.inner(
            hidden_states + hidden_states.roll(1, 1) * (torch.arange(hidden_states.shape[1]) > 0)[:, None]
        )


def test_state_that_runs_from_row_to_row_is_noticed() -> None:
    model = tiny_model("llama")
    model.model.layers[1].mlp = Recurrent(model.model.layers[1].mlp)
    with pytest.raises(UnsupportedModel, match="the packed forward is off by"):
        self_check(HFRunner(model), model)


class Failing(torch.nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def forward(self, hidden_states):
        raise self.error


def test_a_model_that_fails_inside_is_refused_with_its_class_and_the_reason() -> None:
    model = tiny_model("llama")
    broken = copy.deepcopy(model)
    broken.model.layers[1].mlp = Failing(TypeError("unexpected keyword argument 'packed'\nand a long story"))
    with pytest.raises(UnsupportedModel) as caught:
        self_check(HFRunner(broken), model)
    assert str(caught.value) == "LlamaForCausalLM can't run packed: TypeError: unexpected keyword argument 'packed'"


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_full_memory_is_no_fault_of_the_model(error: Exception) -> None:
    model = tiny_model("llama")
    model.model.layers[1].mlp = Failing(error)
    with pytest.raises(type(error)):
        self_check(HFRunner(model), model)


def test_what_attention_refuses_is_told_with_the_models_class(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    runner = HFRunner(model)
    monkeypatch.setattr(runner.model.model.layers[1].self_attn, "layer_idx", None)
    with pytest.raises(
        UnsupportedModel, match="LlamaForCausalLM can't run packed: LlamaAttention doesn't know which layer"
    ):
        self_check(runner, model)


def test_a_model_that_can_not_run_at_all_is_told_apart() -> None:
    model = tiny_model("llama")
    model.model.layers[1].mlp = Failing(RuntimeError("no kernel"))
    with pytest.raises(UnsupportedModel, match="LlamaForCausalLM can't run its own forward: RuntimeError: no kernel"):
        self_check(HFRunner(model), model)


class Scaling(torch.nn.Module):
    """A block that scales the residual stream besides adding to it."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.self_attn, self.mlp = inner.self_attn, inner.mlp
        self.attention_type = "full_attention"
        self.first, self.second = inner.input_layernorm, inner.post_attention_layernorm

    def forward(self, hidden_states, **others):
        hidden_states = 0.9 * hidden_states + self.self_attn(hidden_states=self.first(hidden_states), **others)[0]
        return hidden_states + self.mlp(self.second(hidden_states))


def test_a_model_whose_layers_can_not_be_skipped_runs_whole() -> None:
    model = tiny_model("llama")
    model.model.layers[1] = Scaling(model.model.layers[1])
    runner = HFRunner(model)
    self_check(runner, model)
    runner.check_plan(FULL)
    with pytest.raises(UnsupportedModel, match="a layer without its attention and MLP changes its input"):
        runner.check_plan(LayerPlan.skip(4, mlp=[1]))


def test_a_model_that_is_random_by_itself_is_told_so() -> None:
    model = tiny_model("llama")

    def noisy(module, given, output):
        output.last_hidden_state += torch.randn_like(output.last_hidden_state)
        return output

    model.model.register_forward_hook(noisy)
    with pytest.raises(
        UnsupportedModel, match=r"LlamaForCausalLM: its own forward gives other logits each time .* random"
    ):
        self_check(HFRunner(model), model)


def test_dropout_that_stays_on_is_told_as_randomness() -> None:
    model = tiny_model("llama")
    for layer in model.model.layers:
        layer.mlp.register_forward_hook(lambda module, given, output: F.dropout(output, 0.5, training=True))
    with pytest.raises(UnsupportedModel, match="random, such as dropout or noise; turn that off"):
        self_check(HFRunner(model), model)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_named(value: float) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight[0, :2] = value
    with pytest.raises(
        UnsupportedModel, match=r"its weight model\.layers\.1\.self_attn\.o_proj\.weight holds NaN .* \(2 of 1024\)"
    ):
        self_check(HFRunner(model), model)


def test_logits_that_overflow_though_the_weights_do_not_are_told_so() -> None:
    model = tiny_model("llama").to(torch.float16)
    with torch.no_grad():
        model.lm_head.weight.mul_(60000 / model.lm_head.weight.abs().max())
    with pytest.raises(
        UnsupportedModel, match=r"its weights are not; torch\.float16 overflows, try float32 or bfloat16"
    ):
        self_check(HFRunner(model), model)
