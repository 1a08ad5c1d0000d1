"""Rotary positions as one complex product.

transformers rotates component i of a head with component i + r/2. The lean decoder orders query and key rows of its weights
so that the two stand side by side: a complex number, turned by one multiplication with e^(i angle). The same product scales
the queries and leaves the values as they are, so it runs over queries, keys and values at once, in place.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from ...errors import UnsupportedModel
from .shape import Shape

BLOCK = 1024


def rotary_module(config: Any) -> nn.Module:
    """transformers' own rotary embedding of this model, which knows every kind of scaling."""
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    for module in skeleton.modules():
        if type(module).__name__.endswith("RotaryEmbedding"):
            rotary: nn.Module = type(module)(config)
            return rotary
    raise UnsupportedModel(f"{type(skeleton).__name__} has no rotary embedding")


def interleaved(head_dim: int, rotary_dim: int) -> Tensor:
    """The order of a head's rows in which rotated pairs stand side by side."""
    half = rotary_dim // 2
    pairs = torch.arange(rotary_dim).view(2, half).T.reshape(-1)
    return torch.cat([pairs, torch.arange(rotary_dim, head_dim)])


@final
class Rotation:
    """Complex factors by position for every rotation of a model, made as far as positions are needed."""

    def __init__(self, config: Any, shape: Shape, device: torch.device) -> None:
        self._rotary = rotary_module(config)
        self._shape = shape
        self._device = device
        counts = (shape.heads, shape.kv_heads, shape.kv_heads)
        self._head_kinds = torch.repeat_interleave(torch.arange(3), torch.tensor(counts)).to(device)
        self._tables: dict[str | None, Tensor] = {}
        turning = next((rope for rope in shape.ropes if rope is not None), None)
        self.rotary_dim = shape.head_dim if turning is None else 2 * self._turns(turning, 1).shape[1]

    def factors(self, rope: str | None, positions: Tensor, longest: int) -> Tensor:
        """What to multiply heads at these positions by: complex [n, all heads, head_dim / 2]. longest: above them all."""
        return self.table(rope, longest).index_select(0, positions).index_select(1, self._head_kinds)

    def table(self, rope: str | None, longest: int) -> Tensor:
        """Complex [at least longest, 3, head_dim / 2]: factors of queries, keys and values by position."""
        table = self._tables.get(rope)
        if table is None or table.shape[0] < longest:
            table = self._tables[rope] = self._table(rope, -(-longest // BLOCK) * BLOCK)
        return table

    def _table(self, rope: str | None, length: int) -> Tensor:
        table = torch.ones(length, 3, self._shape.head_dim // 2, dtype=torch.complex64)
        if rope is not None:
            turns = self._turns(rope, length)
            table[:, :2, : turns.shape[1]] = turns[:, None]
        table[:, 0] *= self._shape.scaling
        return table.to(self._device)

    def _turns(self, rope: str, length: int) -> Tensor:
        """Complex [length, rotary_dim / 2]: e^(i angle) of each pair, with the scaling that some ropes have."""
        kind = (rope,) if rope else ()
        cos, sin = self._rotary(torch.zeros(1), torch.arange(length)[None], *kind)
        half = cos.shape[-1] // 2
        return torch.complex(cos[0, :, :half], sin[0, :, :half])
