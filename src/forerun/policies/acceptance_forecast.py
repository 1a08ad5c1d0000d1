"""Forecasts acceptance, of drafted tokens and of those yet to be drafted, from the drafter's own confidences.

There are two regressions. The one for a drafted token reads its confidence. It starts by taking confidences as true
probabilities, and learns from the first rejections how overconfident the drafter is. The one for a future token reads
whether the draft has begun, and the confidence of its last token. Tokens of another kind (computed by a forward, copied with
a confidence that was counted, copied without one) have regressions of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, final

from ..core.learned import numbers
from ..core.values import Step
from .base import confidence, has_row
from .logistic_regression import LogisticRegression, Odds, RequestEffect, log_odds

KEEP = 0.9998  # of what was learnt, an outcome
EFFECT, EFFECT_KEEP = 0.1, 0.995  # variance of a request's own effect, and what is kept of it
FADE = 0.98


class Kind(Enum):
    """How a step's token was found, which says what its confidence is worth."""

    ROW = "computed by a forward"
    COUNTED = "copied, with a confidence that was counted"
    COPIED = "copied, without a confidence"


Reading = tuple[Kind, float]  # the second: half the log-odds of the step's confidence


def read(step: Step) -> Reading:
    if has_row(step):
        return Kind.ROW, log_odds(confidence(step)) / 2
    if step.confidence is not None:
        return Kind.COUNTED, log_odds(step.confidence) / 2
    return Kind.COPIED, 0.0


@final
class Beliefs:
    """The regressions that all requests share."""

    def __init__(self) -> None:
        self.token = {
            Kind.ROW: LogisticRegression([0.0, 2.0], [2.0, 1.0], KEEP),
            Kind.COUNTED: LogisticRegression([0.0, 2.0], [2.0, 1.0], KEEP),
            Kind.COPIED: LogisticRegression([0.5], [2.0], KEEP),
        }
        self.ahead = {
            Kind.ROW: LogisticRegression([0.0, 0.0, 0.5], [2.0, 0.5, 0.5], KEEP),
            Kind.COUNTED: LogisticRegression([0.0, 0.0, 0.5], [2.0, 0.5, 0.5], KEEP),
            Kind.COPIED: LogisticRegression([0.5, 0.0], [2.0, 0.5], KEEP),
        }
        self.typical = dict.fromkeys(Kind, 0.0)  # reading of an accepted token
        # of the drafts, which kind ends them
        self.share = {Kind.ROW: 0.5, Kind.COUNTED: 0.0, Kind.COPIED: 0.5}

    def as_data(self) -> dict[str, Any]:
        return {
            kind.name: {
                "token": self.token[kind].as_data(),
                "ahead": self.ahead[kind].as_data(),
                "usual": [self.typical[kind], self.share[kind]],
            }
            for kind in Kind
        }

    def recall(self, data: Any) -> None:
        """Into beliefs that are new. Raises ValueError where data is not what as_data gives."""
        for kind in Kind:
            told = data.get(kind.name) if isinstance(data, dict) else None
            if not isinstance(told, dict):
                raise ValueError(f"no beliefs were kept in {str(data)[:40]}")
            self.token[kind].recall(told.get("token"))
            self.ahead[kind].recall(told.get("ahead"))
            self.typical[kind], self.share[kind] = numbers(told.get("usual"), 2, -100.0)

    @property
    def with_row(self) -> float:
        """The share of drafts that a forward computed."""
        return self.share[Kind.ROW]

    @property
    def usual(self) -> Kind:
        return max((Kind.COPIED, Kind.COUNTED, Kind.ROW), key=self.share.__getitem__)


@final
class AcceptanceForecast:
    """The forecasts for one request."""

    def __init__(self, beliefs: Beliefs) -> None:
        self._beliefs = beliefs
        self._token = {kind: RequestEffect(EFFECT, EFFECT_KEEP) for kind in Kind}
        self._ahead = {kind: RequestEffect(EFFECT, EFFECT_KEEP) for kind in Kind}
        self._rested = 0  # rounds without a draft that the effects have not yet drifted for

    def acceptance(self, reading: Reading) -> float:
        """Of a drafted token, given that those before it are accepted."""
        self._drift()
        kind = reading[0]
        return self._beliefs.token[kind].of(_of_token(reading), self._token[kind]).probability

    def ahead(self, readings: Sequence[Reading]) -> tuple[Odds, Odds]:
        """Of the next token after these, and of any later one, given that all before it are accepted."""
        self._drift()
        kind = readings[-1][0] if readings else self._beliefs.usual
        place, weights, own = len(readings), self._beliefs.ahead[kind], self._ahead[kind]
        following, later = (self._of_place(kind, readings, at) for at in (place, place + 1))
        return weights.of(following, own), weights.of(later, own)

    def rest(self) -> None:
        """A round passed without a draft."""
        self._rested += 1

    def _drift(self) -> None:
        if self._rested:
            for effect in (*self._token.values(), *self._ahead.values()):
                effect.drift(self._rested)
            self._rested = 0

    def learn(self, readings: Sequence[Reading], accepted: int) -> None:
        self._drift()
        beliefs = self._beliefs
        for place, reading in enumerate(readings[: accepted + 1]):
            kind, right = reading[0], place < accepted
            beliefs.ahead[kind].learn(self._of_place(kind, readings, place), self._ahead[kind], right)
            beliefs.token[kind].learn(_of_token(reading), self._token[kind], right)
            if right and kind is not Kind.COPIED:
                beliefs.typical[kind] += (1 - FADE) * (reading[1] - beliefs.typical[kind])
        if readings:
            for kind in Kind:
                beliefs.share[kind] += (1 - FADE) * ((readings[-1][0] is kind) - beliefs.share[kind])
        else:
            self.rest()

    def _of_place(self, kind: Kind, readings: Sequence[Reading], place: int) -> list[float]:
        """The inputs for the token at a place: whether the draft has begun, and the last token's confidence."""
        begun = float(place > 0)
        if kind is Kind.COPIED:
            return [1.0, begun]
        last = readings[place - 1] if 0 < place <= len(readings) else (Kind.COPIED, 0.0)
        return [1.0, begun, 0.0 if last[0] is Kind.COPIED else last[1] - self._beliefs.typical[last[0]]]


def _of_token(reading: Reading) -> list[float]:
    kind, odds = reading
    return [1.0] if kind is Kind.COPIED else [1.0, odds]
