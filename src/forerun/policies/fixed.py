"""A fixed number of draft steps each round (Leviathan et al., arXiv 2211.17192, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..core.policy import LengthPolicy
from ..core.values import Step
from .base import POLICIES, PolicyFactory


@final
class Fixed(LengthPolicy):
    def __init__(self, k: int) -> None:
        self._k = k

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) >= self._k

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._k - len(steps)


@POLICIES("fixed", source="Leviathan et al., arXiv 2211.17192")
def build(*, k: int = 3) -> PolicyFactory:
    """Always k steps: k tokens of a chain, k levels of a tree."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}; for plain decoding take drafter 'none'")
    return lambda: Fixed(k)
