"""A draft begins with its target's weights: what stays says what the target says, as far as it can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.errors import UnsupportedModel, UnsupportedOption
from forerun.models.files.draft_shape import DraftShape
from forerun.testing import FAMILIES, tiny_model
from forerun.train.distil.activation_statistics import collect_statistics
from forerun.train.distil.draft_init import Cut, check_cut, narrower, new_draft

from ..adapting import answered

IDS = torch.tensor([answered()[0].ids])
TEXTS = [one.ids for one in answered()]
UNLIKE = ("deepseek_v3", "llama4_text")


def whole(config: Any, **changes: int) -> DraftShape:
    return replace(DraftShape.of(config.get_text_config()), **changes)


def cut_of(model: Any, layers: tuple[int, ...] = (0, 1, 2, 3), **changes: int) -> Any:
    cut = Cut(whole(model.config, layers=len(layers), **changes), layers)
    seen = collect_statistics(model, TEXTS, lambda: None) if narrower(cut.shape, model.config) else None
    return new_draft(model, cut, seen)


@torch.no_grad()
def logits(model: Any) -> Tensor:
    found: Tensor = model.eval()(input_ids=IDS, use_cache=False).logits[0]
    return found


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_all_layers_of_any_family_are_the_target_again(family: str) -> None:
    model = tiny_model(family)
    torch.testing.assert_close(logits(cut_of(model)), logits(model), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", UNLIKE)
def test_layers_that_differ_in_kind_are_refused_where_they_do_not_fit(family: str) -> None:
    model = tiny_model(family)
    with pytest.raises(UnsupportedModel, match="differ in kind, and 1, 3 don't stand in a shallower one"):
        cut_of(model, (1, 3))
    assert cut_of(model, (0, 1)).config.num_hidden_layers == 2


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - set(UNLIKE)))
def test_some_layers_are_the_target_with_the_others_silent(family: str) -> None:
    """Compared by weights: a family may place what a layer is by how many there are."""
    model = tiny_model(family)
    kept = (1, 3)
    own = dict(cut_of(model, kept).named_parameters())
    theirs = dict(model.named_parameters())
    assert len(own) < len(theirs)
    for name, value in own.items():
        outer = name
        for place, layer in enumerate(kept):
            outer = outer.replace(f"layers.{place}.", f"layers.<{layer}>.").replace(f".h.{place}.", f".h.<{layer}>.")
        assert torch.equal(value, theirs[outer.replace("<", "").replace(">", "")]), name


def test_lists_with_an_entry_for_each_layer_follow_the_layers_that_stay() -> None:
    model = tiny_model("gemma3_text")
    draft = cut_of(model, (0, 2, 3))
    assert draft.config.layer_types == ["sliding_attention", "sliding_attention", "full_attention"]
    assert draft.config.num_hidden_layers == 3
    assert len(model.config.layer_types) == 4


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_turning_the_stream_alone_changes_nothing(family: str, tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the target's own width the cut is none, so only the turn is left; the norms' weights are lively."""
    model = tiny_model(family, tie_word_embeddings=tied)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.mul_(torch.linspace(0.5, 1.5, len(parameter)))
    wider = tiny_model(family, hidden_size=40, tie_word_embeddings=tied)
    # a stream of 40 numbers of which 8 are always 0: nothing is lost by cutting it to 32
    with torch.no_grad():
        for name, own in wider.named_parameters():
            other = dict(model.named_parameters())[name]
            own.zero_()
            own[tuple(slice(0, size) for size in other.shape)] = other
            if "norm" in name and len(other) == 32:
                own.mul_((32 / 40) ** 0.5)
    draft = cut_of(wider, width=32)
    torch.testing.assert_close(logits(draft), logits(model), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(logits(draft), logits(wider), atol=1e-3, rtol=1e-3)


def test_heads_and_neurons_that_carry_nothing_are_the_first_to_go() -> None:
    model = tiny_model("qwen2")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.down_proj.weight[:, 10:26] = 0
            layer.self_attn.o_proj.weight[:, :16] = 0
    draft = cut_of(model, heads=2, kv_heads=1, mlp=32)
    torch.testing.assert_close(logits(draft), logits(model), atol=1e-4, rtol=1e-4)
    assert draft.model.layers[0].self_attn.q_proj.bias.shape == (16,)
    assert draft.model.layers[0].mlp.gate_proj.weight.shape == (32, 32)


def test_keeping_what_matters_beats_keeping_what_does_not() -> None:
    model = tiny_model("llama")
    shape = Cut(whole(model.config, width=24, mlp=32), (0, 1, 2, 3))
    seen = collect_statistics(model, TEXTS, lambda: None)
    weakest = replace(seen, directions=seen.directions.flip(-1), neurons=tuple(-one for one in seen.neurons))

    def off(kept: Any) -> float:
        return float((logits(new_draft(model, shape, kept)).softmax(-1) - logits(model).softmax(-1)).abs().sum())

    assert off(seen) < off(weakest)


def test_the_target_and_the_global_generator_are_left_alone() -> None:
    model = tiny_model("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    about = model.config.to_dict()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    draft = cut_of(model, (0, 3), width=16)
    assert torch.equal(torch.rand(2), expected)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.config.to_dict() == about


@pytest.mark.parametrize(
    ("family", "changes", "layers", "sentence"),
    [
        ("llama", {"width": 33}, (0,), r"a draft's width must be in 1..32, .*; got 33"),
        ("llama", {"layers": 5}, (0, 1, 2, 3, 3), r"a draft's layers must be in 1..4, .*; got 5"),
        ("llama", {"heads": 1}, (0,), "must keep the target's 2 queries for each key, got 1 heads and 2 kv_heads"),
        ("llama", {"layers": 2}, (0,), r"a draft of 2 layers begins with as many of the target's 0..3, got 0"),
        ("llama", {}, (4,), r"a draft of 1 layers begins with as many of the target's 0..3, got 4"),
        ("gemma", {"width": 16}, (0,), "a gemma draft can only have fewer layers and tokens"),
    ],
)
def test_a_shape_that_the_target_can_not_begin_is_refused(
    family: str, changes: dict[str, int], layers: tuple[int, ...], sentence: str
) -> None:
    config = tiny_model(family).config
    cut = Cut(whole(config, **{"layers": 1, **changes}), layers)
    with pytest.raises(UnsupportedOption, match=sentence):
        check_cut(cut, config)
