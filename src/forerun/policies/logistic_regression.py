"""A logistic regression that learns while decoding.

The log-odds are a weighted sum of what is known. The weights have a Gaussian distribution. Each outcome narrows it
(one Newton step, with the curvature at the prediction), and it drifts back to where it began, so old evidence fades. A
request adds an effect of its own, since texts differ more than the tokens of one text do. The width of the distribution
is the uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, pi, sqrt
from operator import mul
from typing import Any, final

from ..core.learned import numbers

LEAST_CURVATURE = 1e-3
SUREST = 7.0
MOST = 100.0  # of a weight that is kept


def log_odds(probability: float) -> float:
    """log(p / (1 - p)), clipped to a range."""
    inside = min(max(probability, 1e-9), 1 - 1e-9)
    return min(max(log(inside / (1 - inside)), -SUREST), SUREST)


@final
class Odds:
    """Uncertain log-odds: a mean and a variance."""

    __slots__ = ("mean", "variance")

    def __init__(self, mean: float, variance: float) -> None:
        self.mean = mean
        self.variance = variance

    @property
    def probability(self) -> float:
        """MacKay's approximation of the mean of the logistic function under that distribution."""
        return _logistic(self.mean / sqrt(1 + pi * self.variance / 8))

    def optimistic(self, optimism: float) -> float:
        """The probability if the log-odds were so many standard deviations above their mean."""
        return _logistic(self.mean + optimism * sqrt(max(self.variance, 0.0)))


@final
class RequestEffect:
    """What a request adds to the log-odds. Its mean starts at 0 and decays, and its variance returns to the first one."""

    def __init__(self, variance: float, keep: float) -> None:
        self.mean = 0.0
        self.variance = variance
        self._first, self._keep = variance, keep

    def move(self, push: float, curvature: float) -> None:
        self.mean += self.variance * push
        self.variance -= self.variance**2 * curvature
        self.drift()

    def drift(self, times: int = 1) -> None:
        keep = self._keep**times
        self.mean *= keep
        self.variance += (1 - keep**2) * (self._first - self.variance)


@final
class LogisticRegression:
    """mean and variance: of each weight before any outcome. keep: of what was learnt, an outcome."""

    def __init__(self, mean: Sequence[float], variance: Sequence[float], keep: float) -> None:
        self._mean = list(mean)
        self._first = list(variance)
        self._spread = [[own if i == j else 0.0 for j in range(len(mean))] for i, own in enumerate(variance)]
        self._keep = keep

    def of(self, known: Sequence[float], effect: RequestEffect) -> Odds:
        return self._odds(known, effect)[0]

    def _odds(self, known: Sequence[float], effect: RequestEffect) -> tuple[Odds, list[float]]:
        """The odds, and how much each weight varies along with them."""
        mean, variance = effect.mean, 0.0
        pull: list[float] = []
        for weight, row, own in zip(self._mean, self._spread, known, strict=True):
            along: float = sum(map(mul, row, known))
            pull.append(along)
            mean += weight * own
            variance += own * along
        return Odds(mean, effect.variance + max(variance, 0.0)), pull

    def learn(self, known: Sequence[float], effect: RequestEffect, happened: bool) -> None:
        odds, pull = self._odds(known, effect)
        likely = odds.probability
        steepness = max(likely * (1 - likely), LEAST_CURVATURE)
        damping = 1 + odds.variance * steepness
        push, curvature = (happened - likely) / damping, steepness / damping
        fade = self._keep**2
        for i, own in enumerate(pull):
            self._mean[i] += own * push
            row, pulled = self._spread[i], own * curvature
            for j, other in enumerate(pull):
                row[j] = fade * (row[j] - pulled * other)
            row[i] += (1 - fade) * self._first[i]
        effect.move(push, curvature)

    def as_data(self) -> list[list[float]]:
        return [self._mean, *self._spread]

    def recall(self, data: Any) -> None:
        """Raises ValueError where data is not what as_data gives of a regression of so many weights."""
        size = len(self._mean)
        if not isinstance(data, list) or len(data) != size + 1:
            raise ValueError(f"no regression of {size} weights was kept in {str(data)[:40]}")
        mean, *spread = (numbers(row, size, -MOST, MOST) for row in data)
        self._mean, self._spread = mean, spread


def _logistic(x: float) -> float:
    return 1 / (1 + exp(-max(x, -500.0)))
