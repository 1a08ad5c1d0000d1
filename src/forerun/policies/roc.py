"""Stop after an unlikely token, with the threshold that would have separated accepted from rejected tokens best so far.

Every verified token gives a pair: its probability, and whether it was accepted. Of all thresholds, the one with the least
FPR + 3 FNR is taken after each round: stopping before a good token counts three times as much as going on after a bad one.

Source: transformers' assisted generation, assistant_confidence_threshold (its pull request 34156).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import final

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from .base import POLICIES, PolicyFactory, confidence
from .usual_length import UsualLength

LEAST_PAIRS = 6
MISSED = 3.0  # the weight of a false negative


def best_threshold(pairs: Iterable[tuple[float, bool]]) -> float | None:
    """The threshold of least FPR + 3 FNR, the highest of several; None where fewer than two classes were seen.

    A token counts as positive from the threshold on, so every pair's probability is a candidate.
    """
    ordered = sorted(pairs, key=lambda pair: -pair[0])
    right = sum(accepted for _, accepted in ordered)
    wrong = len(ordered) - right
    if not right or not wrong:
        return None
    found, least = None, float("inf")
    caught = let_in = 0
    for value, group in groupby(ordered, key=lambda pair: pair[0]):
        for _, accepted in group:
            caught, let_in = caught + accepted, let_in + (not accepted)
        cost = let_in / wrong + MISSED * (right - caught) / right
        if cost < least:
            found, least = value, cost
    return found


@final
class Pairs:
    """The pairs seen, the newest `window`, and the threshold that follows from them."""

    def __init__(self, threshold: float, window: int) -> None:
        self.threshold = threshold
        self._seen: deque[tuple[float, bool]] = deque(maxlen=window)

    def add(self, pairs: Iterable[tuple[float, bool]]) -> None:
        self._seen.extend(pairs)
        if len(self._seen) >= LEAST_PAIRS and (found := best_threshold(self._seen)) is not None:
            self.threshold = found


@final
class Roc(LengthPolicy):
    def __init__(self, pairs: Pairs, max_steps: int) -> None:
        self._pairs = pairs
        self._max_steps = max_steps
        self._usual = UsualLength()

    def should_stop(self, steps: Sequence[Step]) -> bool:
        if len(steps) >= self._max_steps:
            return True
        return bool(steps) and confidence(steps[-1]) < self._pairs.threshold

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._usual.after(len(steps), self._max_steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._usual.learn(len(steps))
        accepted = len(round.verdict.path)
        if steps:
            self._pairs.add((confidence(step), i < accepted) for i, step in enumerate(steps[: accepted + 1]))


@POLICIES("roc", source="transformers, online threshold of assisted generation, pull request 34156")
def build(*, start: float = 0.4, max_steps: int = 20, window: int = 1000, carry: bool = False) -> PolicyFactory:
    """Draft until a probability falls below the threshold that told right from wrong best so far.

    carry keeps what was learnt from one request to the next; transformers begins anew.
    """
    if not 0 <= start <= 1:
        raise ValueError(f"start must be in [0, 1], got {start}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    if window < LEAST_PAIRS:
        raise ValueError(f"window must be at least {LEAST_PAIRS}, got {window}")
    shared = Pairs(start, window)
    return lambda: Roc(shared if carry else Pairs(start, window), max_steps)
