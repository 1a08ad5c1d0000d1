"""How likely a kept token is accepted: counted by its rank, its share and its depth in the draft, over all requests.

Every token that a model writes tells of all the tokens that were kept for its place, drafted or not.
"""

from __future__ import annotations

from threading import Lock
from typing import final

from .next_tokens import SHARES, NextTokens

FADE = 0.999  # of what was counted, an outcome of the same kind
PRIOR = 4.0  # outcomes that the first guess counts as
DEEPEST = 2  # from there on, depths count as one
Kind = tuple[bool, int, int, int]


@final
class RankAcceptance:
    """Threads may share it."""

    def __init__(self) -> None:
        self._counted: dict[Kind, tuple[float, float]] = {}
        self._lock = Lock()

    def ranking(self, kept: NextTokens, depth: int) -> list[tuple[int, float]]:
        """The tokens, the likeliest first, each with how likely it is, given that those above it are accepted."""
        likely = [self._of(kind) for kind in _kinds(kept, depth)]
        return sorted(zip(kept.tokens, likely, strict=True), key=lambda one: -one[1])

    def learn(self, kept: NextTokens, depth: int, token: int) -> None:
        """At this depth, where these were kept, the model wrote a token."""
        with self._lock:
            for kind, other in zip(_kinds(kept, depth), kept.tokens, strict=True):
                right, tried = self._counted.get(kind, (0.0, 0.0))
                self._counted[kind] = FADE * right + (token == other), FADE * tried + 1

    def _of(self, kind: Kind) -> float:
        right, tried = self._counted.get(kind, (0.0, 0.0))
        guess = (kind[2] + 0.5) / SHARES / 2
        return (right + PRIOR * guess) / (tried + PRIOR)


def _kinds(kept: NextTokens, depth: int) -> list[Kind]:
    deep = min(depth, DEEPEST)
    return [(kept.pair, rank, share, deep) for rank, share in enumerate(kept.shares)]
