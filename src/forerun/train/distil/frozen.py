"""The parts of the frozen model that training a student needs besides its states: embeddings, final norm and head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UnsupportedModel
from ...models.packed.layers import decoder_layers, state_of

PROBE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """embeddings and head [vocabulary, D]; norm is what stands between the last layer and the head."""

    embeddings: Tensor
    head: Tensor
    norm: nn.Module
    config: Any
    last_layers: Sequence[nn.Module]

    @torch.no_grad()
    def head_rows(self, states: Tensor) -> Tensor:
        """What the head reads of states that the last layer gave."""
        normed: Tensor = self.norm(states)
        return normed

    @torch.no_grad()
    def best_tokens(self, rows: Tensor) -> Tensor:
        """The model's greedy choice for rows that its head reads [n, D]."""
        return torch.cat([F.linear(some, self.head.to(some.dtype)).argmax(-1) for some in rows.split(512)])


def frozen_of(model: Any) -> Frozen:
    """Raises UnsupportedModel where more than a norm and a matrix stand between the last layer and the logits' order."""
    layers = decoder_layers(model)
    inside = {id(module) for layer in layers for module in layer.modules()}
    width = int(model.config.get_text_config().hidden_size)
    norms = [
        module
        for module in model.modules()
        if id(module) not in inside and "Norm" in type(module).__name__ and _weighs(module, width)
    ]
    head = model.get_output_embeddings()
    if not norms or not isinstance(head, nn.Linear) or dict(head.named_parameters()).keys() != {"weight"}:
        raise UnsupportedModel(f"{type(model).__name__} has no plain final norm and head to learn from")
    frozen = Frozen(
        embeddings=model.get_input_embeddings().weight.detach(),
        head=head.weight.detach(),
        norm=norms[-1],
        config=model.config.get_text_config(),
        last_layers=list(layers),
    )
    _check(model, layers, frozen)
    return frozen


def _weighs(norm: nn.Module, width: int) -> bool:
    weight = dict(norm.named_parameters(recurse=False)).get("weight")
    return weight is not None and tuple(weight.shape) == (width,)


@torch.no_grad()
def _check(model: Any, layers: nn.ModuleList, frozen: Frozen) -> None:
    """The model's own choices, from the states that its last layer gives."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: Any, out: Any) -> None:
        seen.append(state_of(out))

    ids = torch.arange(PROBE, device=model.device)[None] + 3
    handle = layers[-1].register_forward_hook(keep)
    try:
        logits = model(input_ids=ids, use_cache=False).logits[0]
    finally:
        handle.remove()
    if not torch.equal(frozen.best_tokens(frozen.head_rows(seen[-1][0])), logits.argmax(-1)):
        raise UnsupportedModel(f"{type(model).__name__} does more than normalise between its last layer and its head")
