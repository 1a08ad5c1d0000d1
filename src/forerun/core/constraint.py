"""What a request's text may be, token by token: the part of a grammar that the algorithm sees.

It belongs to the law of each row (sampling.law), so the output follows the law of the masked model whatever is drafted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor


class Constraint(ABC):
    """One request's. It stands after the emitted tokens; `drafted` are tokens after those, in this round.

    complete: nothing can follow the emitted tokens.
    """

    complete: bool = False

    @abstractmethod
    def allowed(self, drafted: tuple[int, ...]) -> Tensor | None:
        """Which tokens may follow: bool [V], on the CPU. None after the end of the text, where nothing counts any more."""

    @abstractmethod
    def permits(self, drafted: tuple[int, ...], token: int) -> bool:
        """Whether the token may follow, as allowed has it; False after the end of the text."""

    @abstractmethod
    def completes(self, drafted: tuple[int, ...]) -> bool:
        """Whether nothing can follow these tokens."""

    @abstractmethod
    def forced(self, room: int) -> tuple[int, ...]:
        """Up to `room` tokens that must follow the emitted ones: after each of them, only the next one is allowed."""

    @abstractmethod
    def emit(self, tokens: Sequence[int]) -> None:
        """Stand after these tokens, too."""
