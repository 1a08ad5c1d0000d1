"""Stop when the draft as a whole has become unlikely: when the product of its tokens' probabilities falls below a bound.

A rejection makes everything after it worthless, so what counts is whether *any* token so far is rejected. SpecDec++ trains a
head for that probability; this rule uses the draft's own probabilities instead.

Source: Huang et al., SpecDec++, arXiv 2405.19715, its stop rule, with confidences instead of the trained head.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import final

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from .base import POLICIES, PolicyFactory, Readings, confidence
from .usual_length import UsualLength


@final
class ConfidenceProduct(LengthPolicy):
    def __init__(self, minimum: float, max_steps: int) -> None:
        self._minimum = minimum
        self._max_steps = max_steps
        self._confidences = Readings(confidence)
        self._usual = UsualLength()

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) >= self._max_steps or prod(self._confidences.of(steps)) < self._minimum

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._usual.after(len(steps), self._max_steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._usual.learn(len(steps))
        self._confidences.clear()


@POLICIES("confidence_product", source="Huang et al., SpecDec++, arXiv 2405.19715, without its head")
def build(*, product: float = 0.5, max_steps: int = 20) -> PolicyFactory:
    """Draft until the product of the drafted tokens' probabilities falls below a bound."""
    if not 0 <= product <= 1:
        raise ValueError(f"product must be in [0, 1], got {product}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    return lambda: ConfidenceProduct(product, max_steps)
