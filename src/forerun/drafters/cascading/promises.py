"""What drafters promise: a draft's tokens less the price of its time, learnt from finished rounds, by kind of draft.

Kinds are named. A draft is of several, the most general first: where the special ones were rarely seen, those before them
count. Time is in plain rounds. Its price is what all rounds give for it, so that a draft is worth its time only if it does
better than what else could be done (renewal reward, as in policies/cost.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, final

from ...core.learned import Learned, numbers

FADE = 0.995  # of what was learnt, a round of the same kind
FADE_OF_ALL = 0.995  # of what all rounds gave, a round
PRIOR, GENERAL = 2.0, 16.0  # rounds that a first guess, and a more general kind, count as
OUTLIER = 4.0  # times the expected time: a round that took longer was interrupted
FIRST_READING, READ_PRIOR = 0.0075, 100.0  # time of a token that a drafter reads first; tokens that it counts as
MOST_KINDS = 1000

Kinds = Sequence[str]


@final
class Promises(Learned):
    """Tokens and time by kind of draft. All requests of an engine share it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float, float]] = {}  # rounds, tokens, time
        self._read: dict[str, tuple[float, float]] = {}  # tokens and time
        self._all = 0.0, 0.0  # tokens and time of all rounds
        self._plain: float | None = None
        self._lock = Lock()

    @property
    def price(self) -> float:
        """Tokens that the time of a plain round is worth."""
        tokens, time = self._all
        return max((tokens + PRIOR) / (time + PRIOR), 1.0)

    @property
    def of_plain(self) -> float:
        """What a round without a draft promises."""
        return 1.0 - self.price

    def of(self, kinds: Kinds, guess: tuple[float, float]) -> float:
        """Expected tokens less the price of their time; guess: tokens and time before any was seen."""
        tokens, time = self._expected(kinds, guess)
        return tokens - self.price * time

    def _expected(self, kinds: Kinds, guess: tuple[float, float]) -> tuple[float, float]:
        (tokens, time), worth = guess, PRIOR
        for kind in kinds:
            if (seen := self._seen.get(kind)) is not None:
                rounds = seen[0] + worth
                tokens, time = (seen[1] + worth * tokens) / rounds, (seen[2] + worth * time) / rounds
                worth = GENERAL
        return tokens, time

    def of_reading(self, drafter: str, tokens: int) -> float:
        """What it costs, in tokens, that a drafter reads so many first."""
        known, time = self._read.get(drafter, (0.0, 0.0))
        return self.price * tokens * (time + READ_PRIOR * FIRST_READING) / (known + READ_PRIOR)

    def learn_plain(self, seconds: float) -> None:
        """A round without a draft took so long after nothing was drafted."""
        self.time_plain(seconds)
        with self._lock:
            self._count(1, 1.0)

    def time_plain(self, seconds: float) -> None:
        """A verification of one row took so long."""
        with self._lock:
            if self._plain:
                seconds = min(seconds, OUTLIER * self._plain)
            self._plain = FADE * self._plain + (1 - FADE) * seconds if self._plain else seconds

    def learn(self, kinds: Kinds, tokens: int, seconds: float, at_most: tuple[float, float] | None = None) -> None:
        """A round with such a draft. It teaches nothing before the time of a plain round is known.

        at_most: the guess for these kinds, where the draft took longer than such drafts do; what is expected counts then.
        """
        with self._lock:
            if not self._plain:
                return
            time = seconds / self._plain
            if at_most is not None:
                time = min(time, self._expected(kinds, at_most)[1])
            for kind in kinds:
                rounds, before, took = self._seen.get(kind, (0.0, 0.0, 0.0))
                if rounds:
                    time = min(time, OUTLIER * took / rounds)
                self._seen[kind] = FADE * rounds + 1, FADE * before + tokens, FADE * took + time
            self._count(tokens, time)

    def learn_reading(
        self, drafter: str, tokens: int, kinds: Kinds, guess: tuple[float, float], seconds: float
    ) -> None:
        """A round of a drafter that first read so many tokens; kinds and guess: of its draft."""
        with self._lock:
            if self._plain:
                time = max(seconds / self._plain - self._expected(kinds, guess)[1], 0.0)
                known, took = self._read.get(drafter, (0.0, 0.0))
                self._read[drafter] = FADE * known + tokens, FADE * took + time

    def _count(self, tokens: int, time: float) -> None:
        before, took = self._all
        self._all = FADE_OF_ALL * before + tokens, FADE_OF_ALL * took + time

    def as_data(self) -> dict[str, Any]:
        with self._lock:
            kinds = {kind: list(seen) for kind, seen in self._seen.items()}
            return {
                "all": list(self._all),
                "kinds": kinds,
                "read": {name: list(one) for name, one in self._read.items()},
            }

    def recall(self, data: Any) -> None:
        """The time of a plain round is measured anew, since the machine may be busier."""
        if not isinstance(data, dict) or not all(isinstance(data.get(part), dict) for part in ("kinds", "read")):
            raise ValueError(f"no promises were kept in {str(data)[:40]}")
        tokens, time = numbers(data.get("all"), 2)
        seen: dict[str, tuple[float, float, float]] = {}
        for kind, told in list(data["kinds"].items())[:MOST_KINDS]:
            rounds, before, took = numbers(told, 3)
            seen[str(kind)] = rounds, before, took
        read: dict[str, tuple[float, float]] = {}
        for name, told in list(data["read"].items())[:MOST_KINDS]:
            known, spent = numbers(told, 2)
            read[str(name)] = known, spent
        with self._lock:
            self._all, self._seen, self._read = (tokens, time), seen, read
