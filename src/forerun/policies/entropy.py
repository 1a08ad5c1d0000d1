"""Stop where the entropy of the draft's law is so high that its token is likely to be rejected.

1 - sqrt(gamma H), with H the entropy of the draft's row in nats, is an estimate of the acceptance from below: Pinsker's
inequality bounds the distance of two laws by the root of their divergence, and gamma H replaces the unknown divergence. The
rule reads the row alone, not the token drawn from it.

Source: Agrawal et al., AdaEDL, arXiv 2410.18351, its static form.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import final

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from .base import POLICIES, PolicyFactory, entropy
from .usual_length import UsualLength


@final
class EntropyBound(LengthPolicy):
    def __init__(self, minimum: float, gamma: float, max_steps: int) -> None:
        self._minimum = minimum
        self._gamma = gamma
        self._max_steps = max_steps
        self._usual = UsualLength()

    def should_stop(self, steps: Sequence[Step]) -> bool:
        if len(steps) >= self._max_steps:
            return True
        return bool(steps) and 1 - sqrt(self._gamma * entropy(steps[-1])) < self._minimum

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._usual.after(len(steps), self._max_steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._usual.learn(len(steps))


@POLICIES("entropy", source="Agrawal et al., AdaEDL, arXiv 2410.18351")
def build(*, acceptance: float = 0.4, gamma: float = 0.2, max_steps: int = 20) -> PolicyFactory:
    """Draft until the acceptance estimated from the row's entropy, 1 - sqrt(gamma H), falls below a bound."""
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance must be in [0, 1], got {acceptance}")
    if not 0 <= gamma < float("inf"):
        raise ValueError(f"gamma must be at least 0 and finite, got {gamma}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    return lambda: EntropyBound(acceptance, gamma, max_steps)
