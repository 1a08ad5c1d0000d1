"""Forecasts acceptance, of drafted tokens and of those yet to be drafted, from the drafter's own confidences.

There are two regressions. The one for a drafted token reads its confidence. It starts by taking confidences as true
probabilities, and learns from the first rejections how overconfident the drafter is. The one for a future token reads
whether the draft has begun, and the confidence of its last token. Copied tokens have no confidence, and regressions of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..core.values import Step
from .base import confidence, has_row
from .logistic_regression import LogisticRegression, Odds, RequestEffect, log_odds

KEEP = 0.9998  # of what was learnt, an outcome
EFFECT, EFFECT_KEEP = 0.1, 0.995  # variance of a request's own effect, and what is kept of it
FADE = 0.98
Reading = tuple[bool, float]  # whether the step has a row; half the log-odds of its confidence


def read(step: Step) -> Reading:
    row = has_row(step)
    return row, log_odds(confidence(step)) / 2 if row else 0.0


@final
class Beliefs:
    """The regressions that all requests share."""

    def __init__(self) -> None:
        self.token = {
            True: LogisticRegression([0.0, 2.0], [2.0, 1.0], KEEP),
            False: LogisticRegression([0.5], [2.0], KEEP),
        }
        self.ahead = {
            True: LogisticRegression([0.0, 0.0, 0.5], [2.0, 0.5, 0.5], KEEP),
            False: LogisticRegression([0.5, 0.0], [2.0, 0.5], KEEP),
        }
        self.typical = 0.0  # reading of an accepted token
        self.with_row = 0.5  # share of the drafts whose steps have a row


@final
class AcceptanceForecast:
    """The forecasts for one request."""

    def __init__(self, beliefs: Beliefs) -> None:
        self._beliefs = beliefs
        self._token = {row: RequestEffect(EFFECT, EFFECT_KEEP) for row in (True, False)}
        self._ahead = {row: RequestEffect(EFFECT, EFFECT_KEEP) for row in (True, False)}

    def acceptance(self, reading: Reading) -> float:
        """Of a drafted token, given that those before it are accepted."""
        row = reading[0]
        return self._beliefs.token[row].of(_of_token(reading), self._token[row]).probability

    def ahead(self, readings: Sequence[Reading]) -> tuple[Odds, Odds]:
        """Of the next token after these, and of any later one, given that all before it are accepted."""
        row = readings[-1][0] if readings else self._beliefs.with_row > 0.5
        place, weights, own = len(readings), self._beliefs.ahead[row], self._ahead[row]
        following, later = (self._of_place(row, readings, at) for at in (place, place + 1))
        return weights.of(following, own), weights.of(later, own)

    def learn(self, readings: Sequence[Reading], accepted: int) -> None:
        beliefs = self._beliefs
        for place, reading in enumerate(readings[: accepted + 1]):
            row, right = reading[0], place < accepted
            beliefs.ahead[row].learn(self._of_place(row, readings, place), self._ahead[row], right)
            beliefs.token[row].learn(_of_token(reading), self._token[row], right)
            if right and row:
                beliefs.typical += (1 - FADE) * (reading[1] - beliefs.typical)
        if readings:
            beliefs.with_row += (1 - FADE) * (readings[-1][0] - beliefs.with_row)
        else:
            for effect in (*self._token.values(), *self._ahead.values()):
                effect.drift()

    def _of_place(self, row: bool, readings: Sequence[Reading], place: int) -> list[float]:
        """The inputs for the token at a place: whether the draft has begun, and the last token's confidence."""
        begun = float(place > 0)
        if not row:
            return [1.0, begun]
        last = readings[place - 1] if 0 < place <= len(readings) else (False, 0.0)
        return [1.0, begun, last[1] - self._beliefs.typical if last[0] else 0.0]


def _of_token(reading: Reading) -> list[float]:
    row, odds = reading
    return [1.0, odds] if row else [1.0]
