"""How likely a drafted token is to be accepted, counted online from what was accepted before.

A question comes as a row of keys, from coarse to fine: "any token", "of confidence 0.9", "of confidence 0.9 at place 3".
Each level is a Beta posterior whose prior is the level above it, worth as many trials as that one has seen, up to a limit.
So a fine key that was never seen answers as its coarse ones do, and moves away from them with its own evidence. Old
evidence fades: a count beyond `window` is scaled down to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from math import sqrt
from typing import final

EDGES = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99)  # of confidence bins: finest where most tokens of a good draft lie
PRIOR_TRIES = 2.0


def confidence_bin(confidence: float) -> int:
    return bisect_right(EDGES, confidence)


@final
class Acceptance:
    """Counts by key. prior: the acceptance of what is altogether unknown; strength: the most that a coarser key counts."""

    def __init__(self, prior: float = 0.7, strength: float = 16.0, window: float = 1000.0) -> None:
        self._prior = prior
        self._strength = strength
        self._window = window
        self._counts: dict[Hashable, tuple[float, float]] = {}

    def learn(self, keys: Sequence[Hashable], accepted: bool) -> None:
        for key in keys:
            tries, right = self._counts.get(key, (0.0, 0.0))
            keep = min(1.0, (self._window - 1) / tries) if tries else 1.0
            self._counts[key] = tries * keep + 1, right * keep + accepted

    def of(self, keys: Sequence[Hashable], optimism: float = 0.0) -> float:
        """The posterior mean, and optimism times its deviation more, at most 1."""
        mean, worth = self._prior, PRIOR_TRIES
        for key in keys:
            tries, right = self._counts.get(key, (0.0, 0.0))
            prior = min(worth, self._strength)
            mean = (prior * mean + right) / (prior + tries)
            worth = prior + tries
        if not optimism:
            return mean
        return min(mean + optimism * sqrt(mean * (1 - mean) / (worth + 1)), 1.0)
