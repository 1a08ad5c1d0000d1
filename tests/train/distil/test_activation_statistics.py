"""What is kept of a model is what its answers stir."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from forerun.testing import tiny_model
from forerun.train.distil.activation_statistics import ActivationStatistics, collect_statistics

from ..adapting import answered, base

TEXTS = [one.ids for one in answered()]


@pytest.fixture(scope="module")
def seen() -> ActivationStatistics:
    return collect_statistics(base(), TEXTS, lambda: None)


def test_there_is_an_energy_for_each_group_and_neuron_of_each_layer(seen: ActivationStatistics) -> None:
    assert [len(one) for one in seen.groups] == [2] * 4
    assert [len(one) for one in seen.neurons] == [48] * 4
    assert all((one > 0).all() for one in (*seen.groups, *seen.neurons))


def test_directions_span_the_stream_and_the_strongest_come_first(seen: ActivationStatistics) -> None:
    turn = seen.directions
    torch.testing.assert_close(turn.mT @ turn, torch.eye(32), atol=1e-4, rtol=0)
    with torch.no_grad():
        found = base()(input_ids=torch.tensor([TEXTS[0]]), output_hidden_states=True).hidden_states[:-1]
    rows = torch.nn.functional.normalize(torch.cat([one[0] for one in found]), dim=-1)
    carried = (rows @ turn).square().sum(0)
    assert carried[:8].sum() > 2 * carried[-8:].sum()


def silenced(model: Any, layer: int, neuron: int, group: int) -> Any:
    with torch.no_grad():
        model.model.layers[layer].mlp.down_proj.weight[:, neuron] = 0
        model.model.layers[layer].self_attn.o_proj.weight[:, 16 * group : 16 * (group + 1)] = 0
    return model


def test_what_nothing_passes_through_has_no_energy() -> None:
    seen = collect_statistics(silenced(tiny_model("llama"), 2, 5, 1), TEXTS[:2], lambda: None)
    assert seen.neurons[2][5] == 0
    assert seen.groups[2][1] == 0
    assert int((seen.neurons[2] == 0).sum()) == 1
    assert (seen.groups[1] > 0).all()


def test_the_model_is_left_as_it_was_and_each_text_ticks() -> None:
    model = tiny_model("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ticks: list[int] = []
    collect_statistics(model, TEXTS[:3], lambda: ticks.append(1))
    assert len(ticks) == 3
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())
