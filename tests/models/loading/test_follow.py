"""A runner after its model object changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from forerun.errors import UnsupportedModel
from forerun.models.lean.adapter_runner import AdapterRunner
from forerun.models.lean.runner import LeanRunner
from forerun.models.loading.follow import check_text_is_not_random, follow
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_adapter, tiny_model

from ..running import finish, off, own_logits, text


def doubled(model: Any) -> None:
    model.model.layers[1].mlp.register_forward_hook(lambda module, args, out: out * 2)


def test_a_changed_module_is_brought_in_and_what_was_computed_before_is_stale() -> None:
    model = tiny_model("llama")
    runner = HFRunner(model, "mine")
    before, version = runner.model, runner.version
    follow(runner)
    assert (runner.model, runner.version) == (before, version)
    doubled(model)
    follow(runner)
    assert runner.version != version
    assert runner.name == "mine"
    assert off(finish(Sequence(runner).forward(text(9))).logits, own_logits(model, text(9))) < 1e-4
    version = runner.version
    follow(runner)
    assert runner.version == version


def test_written_weights_make_a_new_version_and_no_new_copy() -> None:
    model = tiny_model("llama")
    runner = HFRunner(model)
    copy, version = runner.model, runner.version
    model.lm_head.weight.data.mul_(2)
    follow(runner, thoroughly=False)
    assert runner.version == version
    follow(runner)
    assert runner.version != version
    assert runner.model is copy


def test_a_change_that_cannot_run_leaves_the_runner_as_it_was() -> None:
    model = tiny_model("llama")
    runner = HFRunner(model, "mine")
    copy, version = runner.model, runner.version
    handle = model.model.layers[0].register_forward_hook(lambda module, args, out: out.flip(1))
    for _ in range(2):
        with pytest.raises(UnsupportedModel, match="the packed forward is off by"):
            follow(runner)
    assert (runner.model, runner.version) == (copy, version)
    handle.remove()
    follow(runner)
    assert (runner.model, runner.version) == (copy, version)


def fewer_layers(model: Any) -> None:
    model.config.num_hidden_layers = 2
    del model.model.layers[2:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda model: model.to(torch.bfloat16),
            r"mine has changed .* \(type: torch.bfloat16, before: torch.float32\)",
        ),
        (fewer_layers, r"\(layers: 2, before: 4\)"),
        (lambda model: model.resize_token_embeddings(99), r"\(tokens in its vocabulary: 99, before: 97\)"),
    ],
)
def test_what_others_count_on_must_stay(change: Callable[[Any], object], message: str) -> None:
    model = tiny_model("llama")
    runner = HFRunner(model, "mine")
    change(model)
    for _ in range(2):
        with pytest.raises(UnsupportedModel, match=message):
            follow(runner)


def test_a_shorter_context_is_followed() -> None:
    model = tiny_model("llama")
    runner = HFRunner(model)
    model.config.max_position_embeddings = 20
    follow(runner)
    assert runner.max_length == 20


def test_an_adapters_rows_are_as_old_as_its_bases() -> None:
    model = tiny_model("llama")
    base = HFRunner(model)
    adapter = AdapterRunner(tiny_adapter(model, 2, "state"), base)
    assert adapter.version == base.version
    base.renew()
    assert adapter.version == base.version


def test_a_runner_of_its_own_weights_follows_nothing() -> None:
    runner = LeanRunner.from_model(tiny_model("llama"))
    follow(runner)
    check_text_is_not_random(runner)
    assert runner.version == 0


def test_random_text_is_refused() -> None:
    model = tiny_model("llama", attention_dropout=0.5)
    runner = HFRunner(model, "mine")
    check_text_is_not_random(runner)
    model.train()
    with pytest.raises(UnsupportedModel, match=r"mine is in training mode, where LlamaAttention .*; call model.eval"):
        check_text_is_not_random(runner)
