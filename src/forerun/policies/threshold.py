"""Stop after the first token that the draft itself finds unlikely; the token is kept and verified.

The rule is exact because it keeps that token: dropping a drawn token for its own low probability would bias the output.

Source: Zhang et al., Draft & Verify, arXiv 2309.08168 (its static form); transformers' assistant_confidence_threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from .base import POLICIES, PolicyFactory, confidence
from .usual_length import UsualLength


@final
class Threshold(LengthPolicy):
    def __init__(self, minimum: float, max_steps: int) -> None:
        self._minimum = minimum
        self._max_steps = max_steps
        self._usual = UsualLength()

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) >= self._max_steps or (bool(steps) and confidence(steps[-1]) < self._minimum)

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._usual.after(len(steps), self._max_steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._usual.learn(len(steps))


@POLICIES("threshold", source="Zhang et al., arXiv 2309.08168")
def build(*, confidence: float = 0.4, max_steps: int = 20) -> PolicyFactory:
    """Draft until the drafted token's probability falls below a threshold."""
    if not 0 <= confidence <= 1:
        raise ValueError(f"confidence must be in [0, 1], got {confidence}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    return lambda: Threshold(confidence, max_steps)
