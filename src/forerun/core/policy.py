"""The interface of a length policy, which decides when a draft is long enough.

A policy may stop a draft, and leave out the step at which it stops if that was chosen. It can't remove a drawn token, and it
never sees the target's law of the current round, so it can't bias the output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from .identity import Pair
from .values import Round, Step


class LengthPolicy(ABC):
    """Decides for one request. trained_for: the only pair of target and drafter that it may be used with, None if any.

    expected: the tokens and the time, in plain rounds, that it expected of the last round; None if it forecasts nothing.
    """

    trained_for: Pair | None = None
    expected: tuple[float, float] | None = None

    def begin(self, unread: int, room: int, copies: bool = False) -> None:  # noqa: B027
        """A request begins. unread: tokens that its first draft must read first; room: how many more tokens it may have.

        copies: the drafter may show a first step that took no forward (Drafter.copies).
        """

    @abstractmethod
    def should_stop(self, steps: Sequence[Step]) -> bool:
        """Whether the draft made of these steps is long enough.

        Also called before the first step, with no steps: True then drafts nothing in this round.
        """

    def leaves_out(self, steps: Sequence[Step]) -> bool:
        """Whether the last of these steps isn't worth a row: the draft then ends before it.

        Asked once for each step whose tokens were all chosen, before should_stop. What the step's tokens were worth is
        still seen in the text.
        """
        return False

    def ahead(self, steps: Sequence[Step]) -> int:
        """How many further steps it is likely to take, at least 1, where should_stop has just said no.

        A drafter may compute so many at once; those that are never taken are lost. Only speed depends on it.
        """
        return 1

    def observe(self, steps: Sequence[Step], round: Round) -> None:  # noqa: B027
        """Learn from a finished round: the draft's signals, the verdict and the times; without a step that was left out."""

    def end(self) -> None:  # noqa: B027
        """The request has ended, or was cancelled."""
