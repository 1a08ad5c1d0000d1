"""Finding layers and sublayers, and leaving them out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from forerun.errors import UnsupportedModel
from forerun.models.packed.cached_attention import PackedCache
from forerun.models.packed.forward import Packed
from forerun.models.packed.layers import (
    OutputFormat,
    SublayerSkipper,
    WrappedLayer,
    attention_sublayer,
    decoder_layers,
    mlp_sublayers,
)
from forerun.models.packed.mask import Pattern
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ..running import chain, finish, off, own_logits, text

# the modules that write to the residual stream: with zero weights the sublayer adds nothing
OUTPUTS = {
    "llama": ("self_attn.o_proj", "mlp.down_proj"),
    "gemma2": ("self_attn.o_proj", "mlp.down_proj"),
    "granite": ("self_attn.o_proj", "mlp.down_proj"),
    "gpt2": ("attn.c_proj", "mlp.c_proj"),
    "gpt_neox": ("attention.dense", "mlp.dense_4h_to_h"),
    "opt": ("self_attn.out_proj", "fc2"),
}


def silence(layer: nn.Module, name: str) -> None:
    for parameter in layer.get_submodule(name).parameters():
        parameter.data.zero_()


@pytest.mark.parametrize("family", OUTPUTS)
@pytest.mark.parametrize("fresh", [True, False], ids=["first_forward", "later_forward"])
def test_a_skipped_sublayer_adds_nothing_as_if_its_last_weights_were_zero(family: str, fresh: bool) -> None:
    runner = HFRunner(tiny_model(family))
    silent = tiny_model(family)
    for index, layer in enumerate(decoder_layers(silent)):
        if index in (0, 2):
            silence(layer, OUTPUTS[family][0])
        if index in (1, 2):
            silence(layer, OUTPUTS[family][1])
    ids = text(20)
    if not fresh:
        finish(Sequence(runner).sync(ids))

    rows = finish(Sequence(runner).forward(ids, plan=LayerPlan.skip(4, attention=[0, 2], mlp=[1, 2])))

    assert off(rows.logits, own_logits(silent, ids)) < 1e-4
    assert off(rows.logits, own_logits(tiny_model(family), ids)) > 1e-2


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "deepseek_v3", "llama4_text", "gptj"])
def test_a_model_of_which_every_sublayer_is_skipped_says_what_its_embeddings_say(family: str) -> None:
    runner = HFRunner(tiny_model(family, **({"rotary_dim": 4} if family == "gptj" else {})))
    every = range(4)
    rows = finish(
        Sequence(runner).forward(text(9), plan=LayerPlan.skip(4, every, every), taps=frozenset({0, 2, 4})),
    )
    assert torch.equal(rows.taps[0], rows.taps[4])
    assert torch.equal(rows.taps[0], rows.taps[2])


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "gemma3_text", "gpt_neox"])
def test_an_early_exit_equals_the_model_that_ends_there(family: str) -> None:
    runner = HFRunner(tiny_model(family))
    cut = tiny_model(family)
    layers = decoder_layers(cut)
    for layer in (2, 3):
        for name in OUTPUTS.get(family, OUTPUTS["llama"]):
            silence(layers[layer], name)
    rows = finish(Sequence(runner).forward(text(20), plan=LayerPlan.early_exit(2, 4)))
    assert off(rows.logits, own_logits(cut, text(20))) < 1e-4


def test_taps_are_the_inputs_of_the_named_layers() -> None:
    model = tiny_model("llama")
    ids = text(12)
    rows = finish(Sequence(HFRunner(model)).forward(ids, taps=frozenset({0, 1, 3, 4})))
    with torch.no_grad():
        states = model(torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states
        last = model.model.norm(rows.taps[4])
    for layer in (0, 1, 3):
        assert off(rows.taps[layer], states[layer][0]) < 1e-5
    assert off(last, states[4][0]) < 1e-5
    assert set(rows.taps) == {0, 1, 3, 4}


def test_a_failing_layer_leaves_no_sublayer_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    runner = HFRunner(model)
    ids = text(8)
    layer = decoder_layers(runner.model)[1]
    with monkeypatch.context() as patched:
        patched.setattr(layer.input_layernorm, "forward", lambda hidden: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finish(Sequence(runner).forward(ids, plan=LayerPlan.skip(4, mlp=[1])))
    assert off(finish(Sequence(runner).complete(ids, chain(8))).logits, own_logits(model, ids)) < 1e-4


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, str, str]:
        self.calls += 1
        return hidden_states + 1, "weights", "cache"


def test_silence_has_the_form_that_the_module_has_when_it_speaks() -> None:
    module, silent = Pair(), True
    SublayerSkipper(module, lambda: silent)
    states = torch.ones(1, 3, 2)
    for out in (module(states), module(hidden_states=states)):
        assert len(out) == 3
        assert not out[0].any()
        assert out[1:] == (None, None)
    assert module.calls == 1
    silent = False
    assert module(states)[1:] == ("weights", "cache")


def test_a_silent_projection_has_its_own_width() -> None:
    module = nn.Linear(4, 7)
    SublayerSkipper(module, lambda: True)
    for _ in range(2):
        assert torch.equal(module(torch.ones(1, 3, 4)), torch.zeros(1, 3, 7))


def test_a_form_is_a_tensor_or_a_tuple() -> None:
    form, state = OutputFormat(), torch.ones(1)
    form.learn(state)
    assert form.of(state) is state
    form.learn((state, 1))
    assert form.of(state) == (state, None)


class TupleLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.mlp = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, hidden: Tensor, packed: Packed) -> tuple[Tensor, None]:
        return hidden + self.mlp(self.self_attn(hidden)), None


def test_a_skipped_layer_hands_its_input_on_in_its_own_form_from_the_first_call_on() -> None:
    layer = TupleLayer()
    WrappedLayer(layer, 0, last=True)
    packed = Packed([], LayerPlan.skip(1, [0], [0]))
    hidden = torch.ones(1, 3, 2)
    for _ in range(2):
        out = layer(hidden, packed=packed)
        assert out[0] is hidden
        assert out[1] is None


def test_a_layer_that_is_not_told_about_the_packed_rows_is_refused() -> None:
    layer = TupleLayer()
    WrappedLayer(layer, 0, last=True)
    with pytest.raises(UnsupportedModel, match="doesn't hand its keyword arguments to its layers"):
        layer(torch.ones(1, 3, 2))


def test_layers_are_found_by_their_number_past_other_lists() -> None:
    model = tiny_model("mixtral")
    assert len(decoder_layers(model)) == 4
    assert decoder_layers(model) is model.model.layers


def test_a_model_without_such_a_list_is_refused() -> None:
    model = tiny_model("llama")
    model.config.num_hidden_layers = 5
    with pytest.raises(UnsupportedModel, match="LlamaForCausalLM has no list of its 5 decoder layers"):
        decoder_layers(model)


def test_sublayers_with_unknown_names_are_refused_with_the_known_ones() -> None:
    layer = nn.ModuleDict({"mixer": nn.Linear(2, 2), "fc1": nn.Linear(2, 2)})
    with pytest.raises(UnsupportedModel, match="no attention under any of the names self_attn, attn, attention"):
        attention_sublayer(layer)
    with pytest.raises(UnsupportedModel, match="no MLP under any of the names mlp"):
        mlp_sublayers(layer)


def test_a_modules_hooks_are_silent_with_it() -> None:
    module, silent = nn.Linear(2, 2), False
    module.register_forward_hook(lambda module, args, out: out + 5)
    module.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    states = torch.randn(1, 3, 2)
    expected = module(states)
    SublayerSkipper(module, lambda: silent)
    assert torch.equal(module(states), expected)
    silent = True
    assert not module(states).any()


def test_a_skipped_layers_hooks_are_skipped_with_it() -> None:
    model = tiny_model("llama")
    model.model.layers[3].register_forward_hook(lambda module, args, out: out + 1)
    rows = finish(Sequence(HFRunner(model)).forward(text(9), plan=LayerPlan.early_exit(3, 4)))
    bare = finish(Sequence(HFRunner(tiny_model("llama"))).forward(text(9), plan=LayerPlan.early_exit(3, 4)))
    assert torch.equal(rows.logits, bare.logits)
    whole = finish(Sequence(HFRunner(model)).forward(text(9)))
    assert off(whole.logits, own_logits(model, text(9))) < 1e-4


def test_a_layer_whose_attention_asks_a_cache_needs_a_mask() -> None:
    layer = TupleLayer()
    WrappedLayer(layer, 0, last=True, own_mask=Pattern())
    with pytest.raises(UnsupportedModel, match="doesn't hand its mask to its layers"):
        layer(torch.ones(1, 3, 2), cache=PackedCache(Packed([])))
    with pytest.raises(UnsupportedModel, match="nor a cache"):
        layer(torch.ones(1, 3, 2), cache=None)


def test_a_layer_that_gets_its_states_by_name_is_refused() -> None:
    layer = TupleLayer()
    WrappedLayer(layer, 0, last=True)
    with pytest.raises(UnsupportedModel, match="as their first argument"):
        layer(states=torch.ones(1, 3, 2), packed=Packed([]))


def test_a_layer_with_several_streams_of_states_is_refused() -> None:
    layer = TupleLayer()
    WrappedLayer(layer, 0, last=True)
    with pytest.raises(UnsupportedModel, match="hand on 4 streams of states"):
        layer(torch.ones(4, 1, 3, 2), packed=Packed([]))


def test_a_layer_with_two_windows_is_refused() -> None:
    layer = TupleLayer()
    WrappedLayer(layer, 0, last=True, own_mask=Pattern(window=3))
    with pytest.raises(UnsupportedModel, match="two masks, both more than causal"):
        layer(torch.ones(1, 3, 2), Pattern(chunk=2), cache=PackedCache(Packed([])))


def test_a_layer_without_known_sublayers_says_so_and_runs() -> None:
    class Nameless(nn.Module):
        def forward(self, hidden: Tensor, packed: Packed) -> Tensor:
            return hidden + 1

    layer = Nameless()
    assert "Nameless has no attention under any of the names" in WrappedLayer(layer, 0, last=True).unskippable
    assert torch.equal(layer(torch.ones(1, 3, 2), packed=Packed([])), torch.full((1, 3, 2), 2.0))
