"""The head of a draft that tells some tokens apart, as a head of all tokens that never says another.

Other engines have one vocabulary for both models and no bias in the head. So the row of a token that the draft can't say is
one vector for all: with every state that the head reads, its product is far below zero, wherever the states of texts lie. It
is found by least squares on states of random texts, and tried on others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedModel

FAR = -100.0  # the logit that a token gets, near enough, which the draft can't say
MARGIN = 10.0  # by which it stays below the best one
TEXTS, LENGTH = 24, 64
RIDGE = 1e-4


@torch.no_grad()
def whole_head(model: Any, tokens: Sequence[int], name: str) -> Tensor:
    """float32 [vocabulary, width]: the model's own rows for tokens, one far below for the others.

    Raises UnsupportedModel where no such row exists for the model.
    """
    head: Tensor = model.get_output_embeddings().weight.float()
    said = torch.zeros(len(head), dtype=torch.bool)
    said[list(tokens)] = True
    if said.all():
        return head.clone()
    states = _states(model, tokens, seed=0).double()
    square = states.T @ states
    square += RIDGE * square.diagonal().mean() * torch.eye(len(square), dtype=torch.double)
    direction = torch.linalg.solve(square, states.sum(0)).float()
    whole = torch.where(said[:, None], head, FAR * direction)
    tried = _states(model, tokens, seed=1)
    best, unsaid = (tried @ head[said].T).amax(1), tried @ (FAR * direction)
    if bool((unsaid > torch.minimum(best, torch.zeros(1)) - MARGIN).any()):
        raise UnsupportedModel(
            f"the states of {name} have no direction in common, so its head can't be written without the tokens that it "
            "doesn't say; keep them with --vocabulary 0"
        )
    return whole


def _states(model: Any, tokens: Sequence[int], seed: int) -> Tensor:
    """What the head reads in random texts of any tokens and of the ones that are said, low ids more often."""
    generator = torch.Generator().manual_seed(seed)
    said = torch.tensor(tokens)
    rows = len(model.get_output_embeddings().weight)
    length = min(LENGTH, int(getattr(model.config, "max_position_embeddings", LENGTH)))
    places = torch.rand(TEXTS, length, generator=generator)
    texts = torch.cat(
        [
            torch.randint(rows, (TEXTS, length), generator=generator),
            said[(len(said) ** places).long().clamp(max=len(said)) - 1],
        ]
    )
    seen: list[Tensor] = []

    def keep(module: Any, given: tuple[Tensor, ...]) -> None:
        seen.append(given[0].float().flatten(0, 1))

    handle = model.get_output_embeddings().register_forward_pre_hook(keep)
    try:
        model(input_ids=texts, use_cache=False)
    finally:
        handle.remove()
    return torch.cat(seen)
