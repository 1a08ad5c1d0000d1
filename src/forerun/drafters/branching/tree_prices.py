"""How large a drafted tree may get: the probability of acceptance that each further node needs.

An accepted node is a token gained. A node whose row makes the verification longer by some milliseconds pays if it gains more
than plain decoding would have written in them. So with the machine's cost curve V(rows), the price of a row is the slope of
V over V(1). Measured curves have steps (8 rows may cost as much as 5), so the slope is that of the curve's lower convex
hull: then prices never fall, and a draft that takes its best nodes first can stop at the first one that isn't worth its
price.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ...core.cost import Cost, Costs
from ...errors import UnsupportedOption
from ..base import Parts

BUDGET = 24  # where no curve says better


@dataclass(frozen=True, slots=True)
class Pricing:
    """At most `budget` nodes, 0 for as many as can pay, `room` where no costs are known; none worth less than `least`."""

    budget: int
    least: float
    room: int
    given: Cost | None = None

    def prices(self, measured: Cost | None) -> tuple[float, ...]:
        """The price of each node that a draft may have, never falling; measured: the curve where none was given."""
        target = self.given or measured
        if target is None:
            return (self.least,) * (self.budget or self.room)
        most = self.budget or max(target.rows[-1] - 1, 1)
        paying = [price for price in row_prices(target, most) if self.budget or price < 1]
        return tuple(max(price, self.least) for price in paying)


def pricing(parts: Parts, budget: int, min_confidence: float, costs: str) -> Pricing:
    """Raises ValueError on numbers out of range and on a budget that the target's context can't hold.

    costs: a file of measured costs, "" for none. Raises UnsupportedOption on a file that holds none.
    """
    if not 0 <= min_confidence <= 1:
        raise ValueError(f"min_confidence must be in [0, 1], got {min_confidence}")
    if budget < 0:
        raise ValueError(f"budget must be at least 0 nodes (0: as many as pay), got {budget}")
    capacity = parts.target.runner.max_length
    if capacity is not None and budget >= capacity:
        name = parts.target.runner.name
        raise ValueError(
            f"budget must be at most {capacity - 1} nodes, since the cache of {name} holds {capacity} tokens, got {budget}"
        )
    room = BUDGET if capacity is None else min(BUDGET, capacity - 1)
    return Pricing(budget, min_confidence, room, read_costs(costs) if costs else None)


def read_costs(file: str) -> Cost:
    """The target's cost in a file that `forerun calibrate --json` printed, or kept. Raises UnsupportedOption."""
    try:
        return Costs.from_dict(json.loads(Path(file).read_text(encoding="utf-8-sig"))).target
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnsupportedOption(
            f"costs must be a file of measured costs, as `forerun calibrate --json` prints them, got {file}: {error}"
        ) from error


def row_prices(target: Cost, count: int) -> list[float]:
    """The costs of a forward's second row and each further one up to `count`, in plain tokens; they never fall."""
    hull = _lower_hull([(rows, target.ms(rows)) for rows in range(1, count + 2)])
    slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairwise(hull) for _ in range(x0, x1)]
    return [slope / target.ms(1) for slope in slopes]


def _lower_hull(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The corners of the largest convex curve below points that are sorted by x."""
    hull: list[tuple[int, float]] = []
    for x, y in points:
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x1) < (y - y1) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull
