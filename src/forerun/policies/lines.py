"""A straight line through measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# before anything was measured, in verifications of one row
FIRST_SLOPE, SLOPE_WORTH = 0.05, 4.0


@dataclass(frozen=True, slots=True)
class Line:
    """y by x: a straight line through (mid_x, mid_y), nowhere below least."""

    mid_x: float
    mid_y: float
    slope: float
    least: float

    def at(self, x: int) -> float:
        return max(self.mid_y + self.slope * (x - self.mid_x), self.least)


def line_through(points: Mapping[int, tuple[float, float]] | Mapping[float, tuple[float, float]]) -> Line:
    """The line through x -> (y, weight) with the least squares; it never falls."""
    total = sum(weight for _, weight in points.values())
    mid_x = sum(at * weight for at, (_, weight) in points.items()) / total
    mid_y = sum(y * weight for y, weight in points.values()) / total
    spread = sum(weight * (at - mid_x) ** 2 for at, (_, weight) in points.items())
    rise = sum(weight * (at - mid_x) * (y - mid_y) for at, (y, weight) in points.items())
    expected = FIRST_SLOPE * mid_y / (1 + FIRST_SLOPE * (mid_x - 1))
    slope = max((rise + SLOPE_WORTH * expected) / (spread + SLOPE_WORTH), 0.0)
    return Line(mid_x, mid_y, slope, min(y for y, _ in points.values()) / 2)
