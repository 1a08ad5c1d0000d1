"""Forecasts acceptance, of drafted tokens and of those yet to be drafted, from the drafter's own confidences.

There are two regressions. The one for a drafted token reads its confidence. It starts by taking confidences as true
probabilities, and learns from the first rejections how overconfident the drafter is. The one for a future token reads
whether the draft has begun, and the confidence of its last token. Tokens of another drafter, or of another kind (computed by
a forward, copied with a confidence that was counted, copied without one), have regressions of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, final

from ..core.learned import numbers
from ..core.values import Step
from .base import confidence, has_row
from .logistic_regression import LogisticRegression, Odds, RequestEffect, log_odds

KEEP = 0.9998  # of what was learnt, an outcome
EFFECT, EFFECT_KEEP = 0.1, 0.995  # variance of a request's own effect, and what is kept of it
FADE = 0.98
MOST_SOURCES = 64  # that are kept


class Kind(StrEnum):
    """How a step's token was found, which says what its confidence is worth."""

    ROW = "computed by a forward"
    COUNTED = "copied, with a confidence that was counted"
    COPIED = "copied, without a confidence"


class Source(NamedTuple):
    """Where a token comes from. drafter: which of several, "" of one alone."""

    drafter: str
    kind: Kind


class Reading(NamedTuple):
    """What is known of a step. odds: half the log-odds of its confidence."""

    source: Source
    odds: float


def read(step: Step) -> Reading:
    if has_row(step):
        return Reading(Source(step.drafted_by, Kind.ROW), log_odds(confidence(step)) / 2)
    if step.confidence is not None:
        return Reading(Source(step.drafted_by, Kind.COUNTED), log_odds(step.confidence) / 2)
    return Reading(Source(step.drafted_by, Kind.COPIED), 0.0)


@final
class Belief:
    """The regressions for one source. typical: the odds of an accepted token; share: of the drafts, how many it ends."""

    def __init__(self, kind: Kind, share: float = 0.0) -> None:
        copied = kind is Kind.COPIED
        self.token = LogisticRegression([0.5] if copied else [0.0, 2.0], [2.0] if copied else [2.0, 1.0], KEEP)
        self.ahead = LogisticRegression(
            [0.5, 0.0] if copied else [0.0, 0.0, 0.5], [2.0, 0.5] if copied else [2.0, 0.5, 0.5], KEEP
        )
        self.typical = 0.0
        self.share = share

    def as_data(self) -> dict[str, Any]:
        return {"token": self.token.as_data(), "ahead": self.ahead.as_data(), "usual": [self.typical, self.share]}

    def recall(self, data: Any) -> None:
        if not isinstance(data, dict):
            raise ValueError(f"no beliefs were kept in {str(data)[:40]}")
        self.token.recall(data.get("token"))
        self.ahead.recall(data.get("ahead"))
        self.typical, self.share = numbers(data.get("usual"), 2, -100.0)


UNNAMED = (Source("", Kind.COPIED), Source("", Kind.COUNTED), Source("", Kind.ROW))


@final
class Beliefs:
    """The beliefs that all requests share, by source."""

    def __init__(self) -> None:
        copied, counted, row = UNNAMED
        self.sources = {copied: Belief(copied.kind, 0.5), counted: Belief(counted.kind), row: Belief(row.kind, 0.5)}

    def of(self, source: Source) -> Belief:
        known = self.sources.get(source)
        if known is None:
            known = self.sources[source] = Belief(source.kind)
        return known

    def as_data(self) -> dict[str, Any]:
        return {_name(source): belief.as_data() for source, belief in self.sources.items()}

    def recall(self, data: Any) -> None:
        """Into beliefs that are new. Raises ValueError where data is not what as_data gives."""
        if not isinstance(data, dict) or not all(_name(source) in data for source in UNNAMED):
            raise ValueError(f"no beliefs were kept in {str(data)[:40]}")
        for name, told in list(data.items())[:MOST_SOURCES]:
            drafter, _, kind = str(name).rpartition(" ")
            if kind not in Kind.__members__:
                raise ValueError(f"beliefs of an unknown kind were kept, {str(name)[:40]}")
            self.of(Source(drafter, Kind[kind])).recall(told)

    @property
    def with_row(self) -> float:
        """The share of drafts that a forward computed."""
        return sum(belief.share for source, belief in self.sources.items() if source.kind is Kind.ROW)

    @property
    def usual(self) -> Source:
        """The source of most drafts."""
        return max(self.sources, key=lambda source: self.sources[source].share)


def _name(source: Source) -> str:
    return f"{source.drafter} {source.kind.name}".lstrip()


@final
class AcceptanceForecast:
    """The forecasts for one request."""

    def __init__(self, beliefs: Beliefs) -> None:
        self._beliefs = beliefs
        self._token: dict[Source, RequestEffect] = defaultdict(_no_effect)
        self._ahead: dict[Source, RequestEffect] = defaultdict(_no_effect)
        self._rested = 0  # rounds without a draft that the effects have not yet drifted for

    def acceptance(self, reading: Reading) -> float:
        """Of a drafted token, given that those before it are accepted."""
        if self._rested:
            self._drift()
        source = reading.source
        return self._beliefs.of(source).token.of(_of_token(reading), self._token[source]).probability

    def ahead(self, readings: Sequence[Reading]) -> tuple[Odds, Odds]:
        """Of the next token after these, and of any later one, given that all before it are accepted."""
        if self._rested:
            self._drift()
        source = readings[-1].source if readings else self._beliefs.usual
        place, weights, own = len(readings), self._beliefs.of(source).ahead, self._ahead[source]
        following, later = (self._of_place(source, readings, at) for at in (place, place + 1))
        return weights.of(following, own), weights.of(later, own)

    def rest(self, rounds: int = 1) -> None:
        """So many rounds passed without a draft."""
        self._rested += rounds

    def _drift(self) -> None:
        """Let the effects drift for the rounds without a draft."""
        for effect in (*self._token.values(), *self._ahead.values()):
            effect.drift(self._rested)
        self._rested = 0

    def learn(self, readings: Sequence[Reading], accepted: int, ahead: bool = True) -> None:
        """The first `accepted` ones were. ahead: learn what to expect of counted tokens, too, before they are there."""
        if self._rested:
            self._drift()
        beliefs = self._beliefs
        for place, reading in enumerate(readings[: accepted + 1]):
            source, right = reading.source, place < accepted
            belief = beliefs.of(source)
            if ahead or source.kind is not Kind.COUNTED:
                belief.ahead.learn(self._of_place(source, readings, place), self._ahead[source], right)
            belief.token.learn(_of_token(reading), self._token[source], right)
            if right and source.kind is not Kind.COPIED:
                belief.typical += (1 - FADE) * (reading.odds - belief.typical)
        if readings:
            last = readings[-1].source
            for source, belief in beliefs.sources.items():
                belief.share += (1 - FADE) * ((source == last) - belief.share)
        else:
            self.rest()

    def _of_place(self, source: Source, readings: Sequence[Reading], place: int) -> list[float]:
        """The inputs for the token at a place: whether the draft has begun, and the last token's confidence."""
        begun = float(place > 0)
        if source.kind is Kind.COPIED:
            return [1.0, begun]
        last = readings[place - 1] if 0 < place <= len(readings) else None
        if last is None or last.source.kind is Kind.COPIED:
            return [1.0, begun, 0.0]
        return [1.0, begun, last.odds - self._beliefs.of(last.source).typical]


def _no_effect() -> RequestEffect:
    return RequestEffect(EFFECT, EFFECT_KEEP)


def _of_token(reading: Reading) -> list[float]:
    return [1.0] if reading.source.kind is Kind.COPIED else [1.0, reading.odds]
