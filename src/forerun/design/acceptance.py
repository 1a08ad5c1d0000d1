"""Estimates the acceptance of an untrained shape, and says what the estimate is based on.

logit(acceptance) = a + b log(parameters of the draft's layers / parameters of the target's layers). One measured draft
gives the level a, two or more give both by least squares, with a weak pull of b to a default. This assumes that the
measured drafts were trained like the others will be. The formula is not from the literature: it is the simplest curve that
stays within (0, 1). The defaults come from drafts of SmolLM2-135M
(benchmarks/drafts/training.json): the level from one that was trained for 49 minutes, the slope from three depths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SLOPE = 0.3
AT_A_TENTH = 0.64
PULL = 0.1
EDGE = 0.005


@dataclass(frozen=True, slots=True)
class MeasuredAcceptance:
    """A measured acceptance. size: the draft's layers' parameters over the target's."""

    size: float
    acceptance: float


@dataclass(frozen=True, slots=True)
class AcceptanceEstimate:
    """level: the logit at a size of 1. basis: a sentence that says what of it was measured."""

    level: float
    slope: float
    basis: str

    def at(self, size: float) -> float:
        return 1 / (1 + math.exp(-(self.level + self.slope * math.log(size))))


def estimate_from(points: Sequence[MeasuredAcceptance]) -> AcceptanceEstimate:
    if not points:
        return AcceptanceEstimate(
            _logit(AT_A_TENTH) - SLOPE * math.log(0.1),
            SLOPE,
            f"assumed, not measured: a draft with a tenth of the target's layer parameters is right {AT_A_TENTH:.0%} of the "
            f"time, and the logit of that changes by {SLOPE} per unit of log parameters, as for SmolLM2-135M's drafts on "
            "prompts like those of their training; measure a draft (--known, --candidate) to replace this",
        )
    xs = [math.log(point.size) for point in points]
    ys = [_logit(point.acceptance) for point in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    across = sum((x - mean_x) ** 2 for x in xs)
    along = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    slope = (along + PULL * SLOPE) / (across + PULL)
    return AcceptanceEstimate(mean_y - slope * mean_x, slope, _basis(len(points), across, slope))


def _basis(count: int, across: float, slope: float) -> str:
    measured = f"{count} measured draft{'s' if count > 1 else ''}"
    if across == 0:
        return f"the level is that of {measured}; the slope, {slope:.2f} in log parameters, is assumed, not measured"
    return f"fitted to {measured}: the slope in log parameters is {slope:.2f} ({SLOPE} is assumed where nothing is measured)"


def _logit(share: float) -> float:
    inside = min(max(share, EDGE), 1 - EDGE)  # 0 and 1 have none
    return math.log(inside / (1 - inside))
