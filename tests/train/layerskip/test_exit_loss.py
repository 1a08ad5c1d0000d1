from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.models.packed.layers import decoder_layers
from forerun.testing import FAMILIES, tiny_model
from forerun.train.layerskip.exit_loss import Exits, exit_loss, learnt_rows

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 0, 0]])
LABELS = torch.tensor([[-100, -100, 7, 8, 9], [-100, 3, 2, -100, -100]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
INPUTS = {"input_ids": IDS, "attention_mask": MASK, "labels": LABELS}
ALL = {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}


def loss_of(model: Any, weights: dict[int, float], **options: Any) -> Tensor:
    exits = Exits(4)
    with exits.installed(model):
        return exit_loss(exits, model, model, INPUTS, weights, **options)


def by_hand(model: Any, weights: dict[int, float]) -> float:
    """The same from models that are cut after each exit, their logits shifted against the labels."""
    total = 0.0
    layers = decoder_layers(model)
    for layer, weight in weights.items():
        hooks = [
            later.register_forward_hook(
                lambda module, args, kwargs, out: args[0] if args else kwargs["hidden_states"], with_kwargs=True
            )
            for later in layers[layer + 1 :]
        ]
        logits = model(input_ids=IDS, attention_mask=MASK, use_cache=False).logits
        for hook in hooks:
            hook.remove()
        flat, targets = logits[:, :-1].reshape(-1, logits.shape[-1]), LABELS[:, 1:].reshape(-1)
        total += weight * float(F.cross_entropy(flat, targets, ignore_index=-100))
    return total


def test_learnt_rows_are_those_before_a_learnt_token() -> None:
    rows, targets = learnt_rows(LABELS)

    assert rows.tolist() == [1, 2, 3, 5, 6]
    assert targets.tolist() == [7, 8, 9, 3, 2]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_loss_is_that_of_models_cut_after_each_exit(family: str) -> None:
    model = tiny_model(family)

    with torch.no_grad():
        assert float(loss_of(model, ALL)) == pytest.approx(by_hand(model, ALL), rel=1e-5)


def test_the_last_exit_alone_is_the_models_own_loss() -> None:
    model = tiny_model("gemma2")

    with torch.no_grad():
        own = model(**INPUTS).loss
        found = loss_of(model, {3: 1.0})

    assert float(found) == pytest.approx(float(own), rel=1e-6)


def test_every_layer_gets_gradient() -> None:
    model = tiny_model("llama").train()

    loss_of(model, ALL).backward()

    assert [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []


def test_an_exit_sends_nothing_to_later_layers() -> None:
    model = tiny_model("llama").train()

    loss_of(model, {1: 1.0}).backward()

    layers = decoder_layers(model)
    reached = [any(w.grad is not None and bool(w.grad.any()) for w in layer.parameters()) for layer in layers]
    assert reached == [True, True, False, False]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_sparing_memory_changes_no_gradient(checkpointed: bool) -> None:
    def gradients(spare: bool) -> list[Tensor]:
        model = tiny_model("llama").train()
        if spare and checkpointed:
            model.activation_checkpointing_enable({"use_reentrant": False})
        exits = Exits(4)
        with exits.installed(model):
            exit_loss(exits, model, model, INPUTS, ALL, spare_memory=spare).backward()
        return [weight.grad for weight in model.parameters()]

    for one, other in zip(gradients(False), gradients(True), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_count_of_tokens_replaces_that_of_the_batch() -> None:
    model = tiny_model("llama")

    with torch.no_grad():
        assert float(loss_of(model, ALL, count=50)) == pytest.approx(float(loss_of(model, ALL)) / 10)


def test_a_batch_without_learnt_tokens_has_no_loss() -> None:
    model, exits = tiny_model("llama"), Exits(4)

    with exits.installed(model), torch.no_grad():
        loss = exit_loss(exits, model, model, {**INPUTS, "labels": torch.full_like(LABELS, -100)}, ALL)

    assert float(loss) == 0


def test_the_model_runs_as_before_once_it_has_given_its_states() -> None:
    model, exits = tiny_model("llama"), Exits(4)
    expected = model(input_ids=IDS).logits

    with exits.installed(model):
        loss_of(model, ALL)
        exits.states(model, {1}, torch.tensor([0]), {"input_ids": IDS})
        assert torch.equal(model(input_ids=IDS).logits, expected)
    assert torch.equal(model(input_ids=IDS).logits, expected)
