"""Two more steps after a round in which everything was accepted, one fewer after any other (transformers' "heuristic")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from .base import POLICIES, PolicyFactory


@final
class Heuristic(LengthPolicy):
    def __init__(self, k: int, max_steps: int) -> None:
        self._k = k
        self._max_steps = max_steps

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) >= self._k

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._k - len(steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        if steps:
            change = 2 if len(round.verdict.path) == len(steps) else -1
            self._k = min(max(self._k + change, 1), self._max_steps)


@POLICIES("heuristic", source="transformers, num_assistant_tokens_schedule='heuristic'")
def build(*, k: int = 3, max_steps: int = 8) -> PolicyFactory:
    """Start with k steps; +2 after a fully accepted draft, -1 after any other."""
    if not 1 <= k <= max_steps:
        raise ValueError(f"k must be in 1..max_steps, got k {k} and max_steps {max_steps}")
    return lambda: Heuristic(k, max_steps)
