"""Whether it pays that a drafter reads the prompt in its first forward: the rounds saved against the time it takes.

An answer of n tokens takes n plain rounds without drafts, and n / r with them; r is the tokens per plain round of the best
draft length. So reading pays where n (1 - 1 / r) exceeds its time in plain rounds. The expected length of an answer is
learnt from answers that have ended. It doesn't depend on what was written already, as if answers ended by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from ..core.learned import numbers

KEEP = 0.98  # of the lengths of earlier answers, an answer
HOPELESS = 1e-3


@final
class AnswerLengths:
    """The lengths of answers. Before any has ended, the most that is allowed is expected."""

    def __init__(self) -> None:
        self._answers = 0.0
        self._tokens = 0.0

    def add(self, tokens: int) -> None:
        self._answers = KEEP * self._answers + 1
        self._tokens = KEEP * self._tokens + tokens

    def as_data(self) -> list[float]:
        return [self._answers, self._tokens]

    def recall(self, data: Any) -> None:
        self._answers, self._tokens = numbers(data, 2)

    def expected(self, room: int) -> float:
        """Of an answer that may have so many tokens, whose bound counts as one earlier answer."""
        return min(float(room), (room + self._tokens) / (1 + self._answers))


def best_rate(following: float, later: float, step: float, verify: Callable[[int], float], longest: int) -> float:
    """Tokens per plain round at the best draft length; 1, plain decoding's, where no length pays.

    following, later: the acceptances of a draft's first token and of each further one; step and verify are times.
    """
    survives, tokens, best = 1.0, 1.0, 1.0
    for length in range(1, longest + 1):
        survives *= following if length == 1 else later
        tokens += survives
        best = max(best, tokens * verify(1) / (length * step + verify(length + 1)))
        if survives < HOPELESS:
            break
    return best


def gained(tokens: float, rate: float) -> float:
    """The plain rounds that an answer of so many tokens saves."""
    return tokens * (1 - 1 / rate)
