"""What is noticed about a model object, and what isn't for it doesn't matter."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from forerun.models.packed.changes import SAMPLES, ChangeDetector
from forerun.testing import tiny_model

Change = Callable[[Any], object]


def note(model: Any) -> None:
    model.model.layers[0].self_attn.rates = {"one": [1.0, {2}]}


@torch.no_grad()
def gate(model: Any) -> None:
    """A parameter and a buffer of one number each."""
    model.model.register_parameter("gate", nn.Parameter(torch.ones(1)))
    model.model.register_buffer("count", torch.ones(()))


def in_inference(model: Any) -> None:
    with torch.inference_mode():
        model.model.norm.weight = nn.Parameter(torch.ones(32), requires_grad=False)


PREPARED: list[tuple[Change, Change]] = [
    (note, lambda model: model.model.layers[0].self_attn.rates["one"].append(3.0)),
    (note, lambda model: model.model.layers[0].self_attn.rates["one"][1].add(3)),
    (note, lambda model: model.model.layers[0].self_attn.rates.clear()),
    (gate, lambda model: setattr(model.model, "gate", nn.Parameter(torch.ones(1)))),
    (gate, lambda model: setattr(model.model, "count", torch.ones(()))),
    (gate, lambda model: model.model.count.add_(1)),
    (gate, lambda model: delattr(model.model, "gate")),
]
CHANGES: list[Change] = [
    lambda model: setattr(model.config, "rms_norm_eps", 0.5),
    lambda model: setattr(model.config, "max_position_embeddings", 8),
    lambda model: model.config.rope_parameters.update(factor=2.0),
    lambda model: setattr(model, "scale", 2.0),
    lambda model: setattr(model, "forward", lambda **_: None),
    lambda model: model.register_forward_hook(lambda *_: None),
    lambda model: model.model.layers.append(model.model.layers[0]),
    lambda model: model.model.rotary_emb.register_buffer("inv_freq", model.model.rotary_emb.inv_freq.clone()),
    lambda model: setattr(model.model.layers[2].self_attn, "__class__", nn.Identity),
    lambda model: model.double(),
]
HARMLESS: list[Change] = [
    lambda model: model.train(),
    lambda model: model.requires_grad_(False),
    lambda model: setattr(model.config, "use_cache", False),
    lambda model: model.generate(torch.tensor([[1, 2]]), max_new_tokens=2),
    lambda model: setattr(model, "prepare_inputs_for_generation", model.prepare_inputs_for_generation),
    lambda model: model(torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward(),
    lambda model: model.register_full_backward_hook(lambda *_: None),
]


@pytest.mark.parametrize(("prepare", "change"), [*PREPARED, *[(lambda model: None, change) for change in CHANGES]])
def test_a_change_is_noticed(prepare: Change, change: Change) -> None:
    model = tiny_model("llama")
    prepare(model)
    watch = ChangeDetector(model)
    assert not watch.changed()
    change(model)
    assert watch.changed()
    assert watch.changed()


@pytest.mark.parametrize("change", HARMLESS)
def test_what_a_forward_does_not_read_is_no_change(change: Change) -> None:
    model = tiny_model("llama")
    watch = ChangeDetector(model)
    change(model)
    assert not watch.changed()
    assert not watch.changed()
    assert not watch.written()


def test_a_patched_class_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    watch = ChangeDetector(model)
    kind = type(model.model.layers[0].mlp)
    monkeypatch.setattr(kind, "forward", lambda self, hidden: hidden)
    assert watch.changed()


@pytest.mark.parametrize(
    "write",
    [
        lambda weight: weight.add_(1),
        lambda weight: weight[0].mul_(2),
        lambda weight: weight.data.add_(1),
        lambda weight: torch._foreach_mul_([weight], 2),
        lambda weight: setattr(weight, "data", weight + 1),
        lambda weight: weight.detach().numpy().fill(3),
    ],
)
@torch.no_grad()
def test_written_parameters_are_noticed_once(write: Callable[[torch.Tensor], object]) -> None:
    model = tiny_model("llama")
    watch = ChangeDetector(model)
    assert not watch.written()
    write(model.model.layers[1].mlp.up_proj.weight)
    assert watch.written()
    assert not watch.written()
    assert not watch.changed()


def test_only_a_thorough_look_sees_past_the_counters() -> None:
    model = tiny_model("llama")
    watch = ChangeDetector(model)
    model.lm_head.weight.data.add_(1)
    assert not watch.written(thoroughly=False)
    assert watch.written()


def test_values_of_all_rows_are_looked_at_where_a_parameter_is_small_and_of_many_columns_where_it_is_large() -> None:
    model = nn.Linear(512, 256, bias=False)
    watch = ChangeDetector(model)
    for column in range(0, 512, 8):
        model.weight.data[:, column : column + 8] += 1
    assert watch.written()
    small = nn.Linear(SAMPLES // 8, 8, bias=False)
    watch = ChangeDetector(small)
    for row in range(8):
        small.weight.data[row, row % 8] += 1
        assert watch.written()


@torch.no_grad()
def test_weights_that_do_not_lie_together_and_such_of_inference_mode_are_watched() -> None:
    model = tiny_model("llama")
    model.lm_head.weight = nn.Parameter(torch.randn(32, 97).T)
    in_inference(model)
    watch = ChangeDetector(model)
    assert not watch.changed()
    assert not watch.written()
    model.lm_head.weight.data.add_(1)
    assert watch.written()
    with torch.inference_mode():
        model.model.norm.weight.add_(1)
    assert watch.written()


def test_a_model_that_trains_is_random_where_something_drops_out() -> None:
    still, dropping = tiny_model("llama"), tiny_model("llama", attention_dropout=0.25)
    watched, other = ChangeDetector(still), ChangeDetector(dropping)
    assert watched.random() is other.random() is None
    still.train()
    dropping.train()
    assert watched.random() is None
    assert other.random() == "LlamaAttention with attention_dropout 0.25"


def test_a_model_is_not_kept_alive_and_a_dead_one_does_not_change() -> None:
    model = tiny_model("llama")
    model.prepare_inputs_for_generation = model.prepare_inputs_for_generation
    watch = ChangeDetector(model)
    del model
    gc.collect()
    assert watch.model() is None
    assert not watch.changed()
    assert watch.random() is None
