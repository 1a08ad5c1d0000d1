from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from forerun.models.packed.layers import decoder_layers, state_of
from forerun.testing import tiny_model
from forerun.train.layerskip.wrapping import Forward, wrapped


def counting(seen: list[int]) -> Any:
    def wrap(index: int, layer: nn.Module, forward: Forward) -> Forward:
        def run(*args: Any, **kwargs: Any) -> Any:
            seen.append(index)
            return forward(*args, **kwargs)

        return run

    return wrap


def test_every_layer_runs_its_wrapper_in_order() -> None:
    model, seen = tiny_model("llama"), []

    with wrapped(model, counting(seen)):
        model(input_ids=torch.tensor([[1, 2]]))

    assert seen == [0, 1, 2, 3]


def test_the_model_is_as_before_afterwards() -> None:
    model, seen = tiny_model("llama"), []
    with pytest.raises(RuntimeError), wrapped(model, counting(seen)):
        raise RuntimeError

    model(input_ids=torch.tensor([[1, 2]]))

    assert seen == []
    assert ["forward" in vars(layer) for layer in decoder_layers(model)] == [False] * 4


def test_wrappers_in_wrappers_end_in_turn() -> None:
    model, outer, inner = tiny_model("llama"), [], []
    with wrapped(model, counting(outer)):
        with wrapped(model, counting(inner)):
            pass
        model(input_ids=torch.tensor([[1, 2]]))

    assert (len(outer), len(inner)) == (4, 0)


def test_checkpointed_layers_run_their_wrapper_once() -> None:
    model, seen = tiny_model("llama").train(), []
    model.activation_checkpointing_enable({"use_reentrant": False})

    with wrapped(model, counting(seen)):
        model(input_ids=torch.tensor([[1, 2]])).logits.sum().backward()

    assert seen == [0, 1, 2, 3]


def test_the_state_is_alone_or_first() -> None:
    state = torch.ones(1)

    assert state_of(state) is state
    assert state_of((state, None)) is state
