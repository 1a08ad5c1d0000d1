"""What the loop knows of a length policy, which decides when a draft is long enough.

It may stop, it can't remove a token, and it never sees the target's law of the running round, so it can't bias the output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from .identity import Pair
from .values import Round, Step


class LengthPolicy(ABC):
    """Decides for one request. trained_for: the only pair of target and drafter that it may be used with, None if any."""

    trained_for: Pair | None = None

    def begin(self, unread: int, room: int) -> None:  # noqa: B027
        """A request begins: its first draft has so many tokens to read first, and it may have `room` more tokens."""

    @abstractmethod
    def should_stop(self, steps: Sequence[Step]) -> bool:
        """Whether the draft made of these steps is long enough.

        Asked before the first pull too, with no steps: True then drafts nothing this round.
        """

    def observe(self, steps: Sequence[Step], round: Round) -> None:  # noqa: B027
        """Learn from a finished round: the draft's signals, the verdict and the times."""

    def end(self) -> None:  # noqa: B027
        """The request has ended, by itself or by its caller."""
