from __future__ import annotations

from statistics import mean
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.models.packed.layers import decoder_layers
from forerun.testing import tiny_model
from forerun.train.layerskip.layer_dropout import LayerDropout, kept
from forerun.train.layerskip.schedule import dropout_rates

FAMILIES = ("llama", "gemma2", "gpt2", "opt", "gpt_neox", "mixtral", "qwen3", "phi3")
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 4, 4], [1, 1, 2, 3, 5]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])


def states(model: Any, dropout: LayerDropout | None, rates: tuple[float, ...], **given: Any) -> Tensor:
    inputs = {"input_ids": IDS, "attention_mask": MASK, "use_cache": False, **given}
    if dropout is None:
        return model(**inputs).logits
    with dropout.installed(model):
        dropout.begin(0, 0, rates)
        return model(**inputs).logits


def without(model: Any, dropped: set[int], sample: int) -> Tensor:
    """The logits of one sample from a model that lacks the dropped layers."""
    layers = decoder_layers(model)
    kept_layers = [layer for index, layer in enumerate(layers) if index not in dropped]
    hooks = [
        layer.register_forward_hook(
            lambda module, args, kwargs, out: args[0] if args else kwargs["hidden_states"], with_kwargs=True
        )
        for layer in layers
        if layer not in kept_layers
    ]
    try:
        one = slice(sample, sample + 1)
        return model(input_ids=IDS[one], attention_mask=MASK[one], use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sample_comes_out_as_without_its_dropped_layers(family: str) -> None:
    model = tiny_model(family, attention_dropout=0.0, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0, dropout=0.0)
    rates = (0.0, 0.5, 0.5, 0.5)
    patterns = [{layer for layer in range(4) if one not in kept(11, 0, 0, layer, 3, rates[layer])} for one in range(3)]
    model.train()

    with torch.no_grad():
        found = states(model, LayerDropout(11), rates)
        expected = [without(model, dropped, one) for one, dropped in enumerate(patterns)]

    assert len({frozenset(pattern) for pattern in patterns}) > 1
    for one in range(3):
        length = int(MASK[one].sum())
        assert torch.allclose(found[one, :length], expected[one][0, :length], atol=1e-4), patterns


def test_evaluation_drops_nothing() -> None:
    model = tiny_model("llama")

    assert torch.equal(states(model, LayerDropout(0), (1.0,) * 4), states(model, None, ()))


def test_rate_zero_changes_no_bit() -> None:
    model = tiny_model("llama").train()

    assert torch.equal(states(model, LayerDropout(0), (0.0,) * 4), states(model, None, ()))


def test_a_layer_that_all_samples_drop_gets_a_gradient_of_zero() -> None:
    model = tiny_model("llama").train()

    states(model, LayerDropout(0), (0.0, 1.0, 0.0, 1.0)).sum().backward()

    sums = [sum(float(weight.grad.abs().sum()) for weight in layer.parameters()) for layer in decoder_layers(model)]
    assert sums[0] > 0
    assert sums[2] > 0
    assert (sums[1], sums[3]) == (0, 0)


def test_all_layers_dropped_leave_the_embedding() -> None:
    model = tiny_model("llama").train()

    found = states(model, LayerDropout(0), (1.0,) * 4)

    assert torch.allclose(found, model.lm_head(model.model.norm(model.model.embed_tokens(IDS))))


def test_gradients_agree_with_and_without_checkpointing() -> None:
    def gradients(checkpointed: bool) -> list[Tensor]:
        model = tiny_model("llama").train()
        if checkpointed:
            model.activation_checkpointing_enable({"use_reentrant": False})
        states(model, LayerDropout(3), (0.0, 0.4, 0.4, 0.6)).square().sum().backward()
        return [weight.grad for weight in model.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(gradients(False), gradients(True), strict=True))


def test_position_ids_of_each_sample_go_with_it() -> None:
    model = tiny_model("llama").train()
    places = torch.tensor([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7], [0, 2, 4, 6, 8]])
    pattern = [set(kept(2, 0, 0, layer, 3, 0.5)) for layer in range(4)]

    found = states(model, LayerDropout(2), (0.5,) * 4, position_ids=places)

    assert any(0 < len(samples) < 3 for samples in pattern)
    assert not torch.allclose(found, states(model, LayerDropout(2), (0.5,) * 4), atol=1e-3)


def test_the_pattern_depends_on_each_of_its_keys_and_on_nothing_else() -> None:
    base = (1, 2, 3, 4)
    drawn = kept(*base, 64, 0.5)

    torch.rand(10)
    assert kept(*base, 64, 0.5) == drawn
    for place in range(4):
        other = [value + (index == place) for index, value in enumerate(base)]
        assert kept(*other, 64, 0.5) != drawn


def test_samples_are_dropped_as_often_as_the_rate_says() -> None:
    rates = dropout_rates(0, 1, 32, 0.2)
    dropped = [
        1 - len(kept(0, step, 0, layer, 16, rate)) / 16 for step in range(200) for layer, rate in enumerate(rates)
    ]

    assert mean(dropped) == pytest.approx(0.0889, abs=0.003)


def test_a_first_batch_that_is_dropped_whole_has_the_form_of_the_layers_result() -> None:
    model = tiny_model("gpt2").train()

    assert states(model, LayerDropout(0), (1.0,) * 4).shape == (3, 5, 97)
