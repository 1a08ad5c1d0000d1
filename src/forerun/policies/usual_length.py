"""How long drafts usually become, for rules that know a draft's end only when it is there."""

from __future__ import annotations

from typing import final

FIRST = 2


@final
class UsualLength:
    """About the median number of steps of the newest drafts: it moves by one towards each."""

    def __init__(self) -> None:
        self._steps = FIRST

    def after(self, steps: int, most: int) -> int:
        """How many further steps a draft of this many is likely to get, at least 1, of at most `most` in all."""
        return max(min(self._steps, most) - steps, 1)

    def learn(self, steps: int) -> None:
        """A draft came to so many; a round without one teaches nothing."""
        if steps:
            self._steps += (steps > self._steps) - (steps < self._steps)
