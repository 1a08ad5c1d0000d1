"""Weights, gradients and optimiser states spread over the processes of a launch, by torch's fully_shard (FSDP 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

Kind = TypeVar("Kind", bound=nn.Module)


def spread(module: Kind, units: Callable[[Kind], Iterable[nn.Module]]) -> Kind:
    """A copy whose trained weights are spread over all processes; frozen ones are the module's own.

    units of a copy: the modules whose weights are gathered together for a forward, inner ones first. The last one is the
    one that is called first.
    """
    frozen = {weight for weight in module.parameters() if not weight.requires_grad}
    copied = deepcopy(module, {id(weight): weight for weight in frozen})
    for unit in units(copied):
        fully_shard(unit, ignored_params=frozen)
    return copied


def whole(tensor: Tensor) -> Tensor:
    """What all processes hold of it together, in each of them; all must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def part_of(value: Tensor, like: Tensor) -> Tensor:
    """Of a whole tensor that every process has, the part that this one holds where `like` is spread."""
    if not isinstance(like, DTensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def trained_weights(module: nn.Module) -> dict[str, Tensor]:
    """Those that require a gradient, whole, by name; all processes must ask."""
    return {name: whole(weight.detach()).cpu() for name, weight in _trained(module).items()}


@torch.no_grad()
def load_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """What trained_weights gave, also from another number of processes."""
    for name, weight in _trained(module).items():
        weight.copy_(part_of(tensors[name], weight))


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The whole state, under "NUMBER.FIELD" of each weight; all processes must ask."""
    return {
        f"{number}.{field}": whole(torch.as_tensor(value)).cpu()
        for number, state in optimiser.state_dict()["state"].items()
        for field, value in state.items()
    }


def load_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """What optimiser_tensors gave, also from another number of processes."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        number, _, field = name.partition(".")
        state.setdefault(int(number), {})[field] = part_of(value, weights[int(number)])
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
