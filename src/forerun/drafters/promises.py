"""What drafters promise: tokens for their time, learnt from finished rounds, by how sure a draft began."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import final

FADE = 0.98  # of what was learnt, a round of the same kind
PRIOR = 2.0  # plain rounds that a first guess counts as


@final
class Promises:
    """Tokens a time by kind of draft; time in plain rounds. All requests of an engine share it."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[float, float]] = {}
        self._plain: float | None = None
        self._lock = Lock()

    def of(self, kind: Hashable, guess: float) -> float:
        """Expected tokens for the time of a plain round; guess is what is expected before any was seen."""
        tokens, time = self._seen.get(kind, (0.0, 0.0))
        return (tokens + PRIOR * guess) / (time + PRIOR)

    def learn_plain(self, seconds: float) -> None:
        """A round without a draft took so long."""
        with self._lock:
            self._plain = seconds if self._plain is None else FADE * self._plain + (1 - FADE) * seconds

    def learn(self, kind: Hashable, tokens: int, seconds: float) -> None:
        """A round with such a draft. It teaches nothing before the time of a plain round is known."""
        with self._lock:
            if not self._plain:
                return
            before, time = self._seen.get(kind, (0.0, 0.0))
            self._seen[kind] = FADE * before + tokens, FADE * time + seconds / self._plain
