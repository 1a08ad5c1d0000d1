"""Laws: distributions over tokens, with the three operations that verification needs.

These are the probability of a token, the residual after a token of another law was rejected, and the token at a quantile.
Verification uses nothing else, so the tests run the same code on exact fractions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import final

import torch
from torch import Tensor


class Law(ABC):
    """A distribution over token ids."""

    @abstractmethod
    def probability(self, token: int) -> float:
        """The probability of token; 0 outside the vocabulary."""

    @abstractmethod
    def minus(self, other: Law) -> Law:
        """norm(max(p - q, 0)), the residual law after a token drawn from q = other was rejected.

        If rounding leaves nothing, p itself (Leviathan et al., arXiv 2211.17192, section 2.3).
        """

    @abstractmethod
    def quantile(self, u: float) -> int:
        """The token whose interval of the cumulative distribution holds u, 0 <= u < 1; never one of probability 0."""


@final
class PointMass(Law):
    """All probability on one token: a greedy choice, lookup, any token that was chosen and not drawn."""

    __slots__ = ("token",)

    def __init__(self, token: int) -> None:
        self.token = token

    def probability(self, token: int) -> float:
        return 1 if token == self.token else 0  # whole numbers, so that exact fractions stay exact

    def minus(self, other: Law) -> Law:
        return self

    def quantile(self, u: float) -> int:
        return self.token


@final
class Categorical(Law):
    """A law given by its probabilities, a float tensor of shape [V]."""

    __slots__ = ("probs",)

    def __init__(self, probs: Tensor) -> None:
        self.probs = probs

    def probability(self, token: int) -> float:
        return float(self.probs[token]) if 0 <= token < self.probs.shape[0] else 0.0

    def minus(self, other: Law) -> Law:
        rest = self.probs.clone()
        if isinstance(other, Categorical):
            shared = min(rest.shape[0], other.probs.shape[0])
            rest[:shared] -= other.probs[:shared].to(rest.device)
            rest.clamp_(min=0)
        elif isinstance(other, PointMass):
            rest[other.token] = 0
        elif isinstance(other, Filtered):
            known = bisect_left(other.tokens, rest.shape[0])
            rest[list(other.tokens[:known])] -= torch.tensor(other.probs[:known], dtype=rest.dtype, device=rest.device)
            rest.clamp_(min=0)
        else:
            raise TypeError(f"can't take a {type(other).__name__} from a Categorical")
        total = rest.sum()
        return Categorical(rest / total) if total > 0 else self

    def quantile(self, u: float) -> int:
        # float64 on the CPU: a float32 sum over a large vocabulary moves cells by more than a rare token's probability
        cells = self.probs.to("cpu", torch.float64).cumsum(0)
        return int(torch.searchsorted(cells, u * float(cells[-1]), right=True))


@final
class Filtered(Law):
    """A law of the few tokens that filters left: in ascending order, each with its probability."""

    __slots__ = ("probs", "tokens")

    def __init__(self, tokens: Sequence[int], probs: Sequence[float]) -> None:
        self.tokens = tokens
        self.probs = probs

    def probability(self, token: int) -> float:
        place = bisect_left(self.tokens, token)
        return self.probs[place] if place < len(self.tokens) and self.tokens[place] == token else 0.0

    def minus(self, other: Law) -> Law:
        left = [
            (token, more)
            for token, prob in zip(self.tokens, self.probs, strict=True)
            if (more := prob - other.probability(token)) > 0
        ]
        total = sum(more for _, more in left)
        return Filtered([token for token, _ in left], [more / total for _, more in left]) if total > 0 else self

    def quantile(self, u: float) -> int:
        cells = list(accumulate(self.probs))
        return self.tokens[bisect_right(cells, u * cells[-1])]
