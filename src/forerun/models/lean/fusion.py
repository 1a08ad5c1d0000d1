"""How a decoder that reads another model's states begins: one product over each state and, for some, the token beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from .layers import Norm
from .linear import Linear


@final
@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """The product reads states, normed, and after them their tokens' rows of the embedding, where with_tokens says so."""

    norm: Norm
    product: Linear
    with_tokens: bool

    def __call__(self, states: Tensor, ids: Tensor, embed: Callable[[Tensor], Tensor]) -> Tensor:
        """The rows with which layers begin, float32 [n, D], of states [n, D] and tokens [n]."""
        own = self.norm(states.float())
        if self.with_tokens:
            own = torch.cat([own, embed(ids)], 1)
        # a copy, since layers add to it in place
        return self.product(own).to(torch.float32, copy=True)
