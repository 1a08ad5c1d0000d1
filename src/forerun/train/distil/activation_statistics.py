"""Activation statistics of a model on its own answers: the directions, heads and neurons for a narrower draft to keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...models.packed.layers import decoder_layers

TEXTS = 64


@dataclass(frozen=True, slots=True, eq=False)
class ActivationStatistics:
    """directions [D, D]: columns span the residual stream, the strongest first.

    groups and neurons hold, for each layer, the energy that passes on through each key's queries [kv_heads] and through
    each MLP neuron [mlp].
    """

    directions: Tensor
    groups: tuple[Tensor, ...]
    neurons: tuple[Tensor, ...]


@torch.no_grad()
def collect_statistics(model: Any, texts: Sequence[Sequence[int]], tick: Callable[[], None]) -> ActivationStatistics:
    """Let the model read texts. Its layers must have self_attn.o_proj and mlp.down_proj."""
    config = model.config.get_text_config()
    ends: list[Any] = list(decoder_layers(model))
    outs, downs = [layer.self_attn.o_proj for layer in ends], [layer.mlp.down_proj for layer in ends]
    passed = [torch.zeros(matrix.in_features) for matrix in (*outs, *downs)]
    spread = torch.zeros(config.hidden_size, config.hidden_size)
    with ExitStack() as stack:
        for matrix, energy in zip((*outs, *downs), passed, strict=True):
            stack.callback(matrix.register_forward_pre_hook(_adding(energy)).remove)
        for text in texts:
            seen = model(
                input_ids=torch.tensor([text], device=model.device), use_cache=False, output_hidden_states=True
            )
            for states in seen.hidden_states[:-1]:
                # each row counts alike, as a norm makes them
                rows = nn.functional.normalize(states[0].float(), dim=-1).cpu()
                spread += rows.mT @ rows
            tick()
    energies = [energy * _squares(matrix) for energy, matrix in zip(passed, (*outs, *downs), strict=True)]
    groups = tuple(energy.view(config.num_key_value_heads, -1).sum(-1) for energy in energies[: len(outs)])
    # the smallest eigenvalue comes first
    return ActivationStatistics(torch.linalg.eigh(spread).eigenvectors.flip(-1), groups, tuple(energies[len(outs) :]))


def _adding(energy: Tensor) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def add(module: nn.Module, args: tuple[Any, ...]) -> None:
        energy.add_(args[0].float().flatten(0, -2).square().sum(0).cpu())

    return add


def _squares(matrix: nn.Linear) -> Tensor:
    """Of each input's column."""
    return matrix.weight.detach().float().square().sum(0).cpu()
