"""Weights spread over processes, here over a group of one; two train in test_launch.py."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from forerun.train.sharding import (
    load_optimiser,
    load_weights,
    optimiser_tensors,
    part_of,
    spread,
    trained_weights,
    whole,
)


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def model() -> nn.Sequential:
    """Two layers, of which the first one isn't trained."""
    torch.manual_seed(1)
    made = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    made[0].requires_grad_(False)
    return made


def learnt(module: nn.Module, steps: int, optimiser: torch.optim.Optimizer | None = None) -> torch.optim.Optimizer:
    if optimiser is None:
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        optimiser = torch.optim.AdamW(weights, lr=0.1)
    for step in range(steps):
        module(torch.arange(3.0)[None] + step).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    return optimiser


def units(module: nn.Sequential) -> tuple[nn.Module, ...]:
    return (module[2], module)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_spread_copy_learns_the_same_and_leaves_the_original(group: None) -> None:
    plain, original = model(), model()
    before = deepcopy(original.state_dict())
    copied = spread(original, units)
    learnt(plain, 3)
    learnt(copied, 3)
    assert same(trained_weights(copied), trained_weights(plain))
    assert same(original.state_dict(), before)


def test_trained_weights_are_spread_and_frozen_ones_are_the_originals_own(group: None) -> None:
    original = model()
    copied = spread(original, units)
    assert copied[0].weight is original[0].weight
    assert all(isinstance(weight, DTensor) for weight in copied[2].parameters())
    assert list(trained_weights(copied)) == ["2.weight", "2.bias"]


def test_what_was_gathered_is_loaded_again_spread_or_not(group: None) -> None:
    one = spread(model(), units)
    optimiser = learnt(one, 2)
    # of one process they are the tensors themselves
    weights, states = deepcopy((trained_weights(one), optimiser_tensors(optimiser)))
    assert not any(isinstance(value, DTensor) for value in (*weights.values(), *states.values()))
    assert set(states) == {f"{number}.{field}" for number in (0, 1) for field in ("step", "exp_avg", "exp_avg_sq")}

    others = (spread(model(), units), model())
    learnt(one, 2, optimiser)
    for other in others:
        fresh = learnt(other, 0)
        load_weights(other, weights)
        load_optimiser(fresh, deepcopy(states))
        learnt(other, 2, fresh)
        assert same(trained_weights(other), trained_weights(one))


def test_a_part_is_of_the_kind_of_what_it_is_a_part_of(group: None) -> None:
    (weight, _) = spread(model(), units)[2].parameters()
    value = torch.arange(10.0).view(2, 5)
    assert isinstance(part_of(value, weight), DTensor)
    assert torch.equal(whole(part_of(value, weight)), value)
    # an optimiser's count of steps has no shape to be spread
    assert not isinstance(part_of(torch.tensor(1.0), weight), DTensor)
    assert part_of(value, value) is value
    assert whole(value) is value
