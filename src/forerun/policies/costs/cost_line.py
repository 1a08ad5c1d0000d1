"""Costs of row counts that were rarely or never seen: a straight line through the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

FIRST_SLOPE, SLOPE_WORTH = 0.05, 4.0  # before anything was measured, in verifications of one row


@dataclass(frozen=True, slots=True)
class Line:
    """y by x: a straight line through (mid_x, mid_y), nowhere below least."""

    mid_x: float
    mid_y: float
    slope: float
    least: float

    def at(self, x: float) -> float:
        return max(self.mid_y + self.slope * (x - self.mid_x), self.least)


def line_through(points: Mapping[float, tuple[float, float]], first_slope: float = FIRST_SLOPE) -> Line:
    """The line through x -> (y, weight) with the least squares; it never falls."""
    total = mid_x = mid_y = 0.0
    least = inf
    for at, (y, weight) in points.items():
        total += weight
        mid_x += at * weight
        mid_y += y * weight
        least = min(least, y)
    mid_x, mid_y = mid_x / total, mid_y / total
    spread = rise = 0.0
    for at, (y, weight) in points.items():
        spread += weight * (at - mid_x) ** 2
        rise += weight * (at - mid_x) * (y - mid_y)
    expected = first_slope * mid_y / (1 + first_slope * (mid_x - 1))
    slope = max((rise + SLOPE_WORTH * expected) / (spread + SLOPE_WORTH), 0.0)
    return Line(mid_x, mid_y, slope, least / 2)
