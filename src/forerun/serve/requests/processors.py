"""Fields that change scores by token: functions of a row, so that drafts are verified with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor

from ..refusal import invalid


@final
class TokenBias:
    """Adds a number to the scores of some tokens."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._tokens = torch.tensor(list(biases))
        self._values = torch.tensor(list(biases.values()))

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        values = self._values.to(scores.device, scores.dtype)
        return scores.index_add(-1, self._tokens.to(scores.device), values.expand(*scores.shape[:-1], -1))


@final
class NoEndBefore:
    """Allows no end of the text before it has so many tokens."""

    def __init__(self, length: int, ends: Sequence[int]) -> None:
        self._length = length
        self._ends = torch.tensor(sorted(ends))

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        if ids.shape[-1] >= self._length:
            return scores
        return scores.index_fill(-1, self._ends.to(scores.device), -torch.inf)


def biases_of(field: Mapping[str, float] | None, vocab_size: int) -> dict[int, float]:
    """logit_bias by token. Raises Refusal on what is no token of the model's."""
    found: dict[int, float] = {}
    for name, value in (field or {}).items():
        token = int(name) if name.isascii() and name.isdigit() and len(name) < 12 else -1
        if not 0 <= token < vocab_size:
            raise invalid(f"logit_bias must name token ids in 0..{vocab_size - 1}", "logit_bias")
        found[token] = value
    return found
