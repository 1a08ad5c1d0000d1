"""Any other policy, within a minimum and a maximum number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from ..core.policy import LengthPolicy
from ..core.values import Step
from .base import POLICIES, PolicyFactory
from .wrapping import Wrapping, inner_policy


@final
class Bounded(Wrapping):
    def __init__(self, inner: LengthPolicy, min_steps: int, max_steps: int) -> None:
        super().__init__(inner)
        self._min = min_steps
        self._max = max_steps

    def should_stop(self, steps: Sequence[Step]) -> bool:
        if len(steps) < self._min:
            return False
        return len(steps) >= self._max or self._inner.should_stop(steps)

    def leaves_out(self, steps: Sequence[Step]) -> bool:
        return len(steps) > self._min and self._inner.leaves_out(steps)

    def ahead(self, steps: Sequence[Step]) -> int:
        # the inner rule was not asked yet about a draft below the minimum
        left = self._min - len(steps)
        return left if left > 0 else min(self._inner.ahead(steps), self._max - len(steps))


@POLICIES("bounded", source="SpecDec++, arXiv 2405.19715 (min and max length)")
def build(*, inner: str = "threshold", min_steps: int = 1, max_steps: int = 20, **options: Any) -> PolicyFactory:
    """Another policy (inner, with its own options) between min_steps and max_steps."""
    if not 0 <= min_steps <= max_steps or max_steps < 1:
        raise ValueError(
            f"bounds must be 0 <= min_steps <= max_steps and max_steps >= 1, got {min_steps} and {max_steps}"
        )
    make = inner_policy("bounded", inner, options)
    return lambda: Bounded(make(), min_steps, max_steps)
