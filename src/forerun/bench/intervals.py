"""Medians, totals and their 95 % intervals, by resampling the prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float


def median_of(values: Sequence[float]) -> Estimate | None:
    """The median, None if there are no values."""
    if not values:
        return None
    data = np.asarray(values, dtype=float)
    return _estimate(float(np.median(data)), np.median(data[_resamples(len(data))], axis=1))


def ratio_of_sums(parts: Sequence[float], wholes: Sequence[float]) -> Estimate | None:
    """sum(parts) / sum(wholes), the two paired by prompt; None where there is nothing to divide by."""
    if not parts or not sum(wholes):
        return None
    top, bottom = np.asarray(parts, dtype=float), np.asarray(wholes, dtype=float)
    picks = _resamples(len(top))
    drawn = bottom[picks].sum(1)
    rates = top[picks].sum(1)[drawn > 0] / drawn[drawn > 0]
    return _estimate(float(top.sum() / bottom.sum()), rates)


def ratio_of_rates(
    tokens: Sequence[float], seconds: Sequence[float], base_tokens: Sequence[float], base_seconds: Sequence[float]
) -> Estimate | None:
    """(sum tokens / sum seconds) over the same of the base, all four paired by prompt."""
    if not tokens or not sum(seconds) or not sum(base_tokens) or not sum(base_seconds):
        return None
    table = np.asarray([tokens, seconds, base_tokens, base_seconds], dtype=float)
    sums = table[:, _resamples(table.shape[1])].sum(2)
    a, b, c, d = sums[:, (sums[1:] > 0).all(0)]
    whole = table.sum(1)
    return _estimate(float(whole[0] / whole[1] / (whole[2] / whole[3])), (a / b) / (c / d))


def _resamples(n: int) -> NDArray[np.int64]:
    """Prompt numbers [RESAMPLES, n], the same for equal n: a report can be computed again from its samples."""
    return np.random.default_rng(n).integers(0, n, (RESAMPLES, n))


def _estimate(value: float, resampled: NDArray[np.float64]) -> Estimate:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high))


def number(value: float | None, digits: int) -> str:
    """As a table shows it, "-" for None."""
    return "-" if value is None else f"{value:.{digits}f}"
