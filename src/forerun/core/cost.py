"""What a forward costs on this machine: milliseconds by rows and length of the prefix. Values only.

forerun.bench.calibrate measures them. Padding, draft lengths, the choice of a method and the predicted speed-up follow from
them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import UnsupportedOption

PADDING_GAIN = 0.05


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: the median of ms, and the distance between its quartiles."""

    rows: int
    prefix: int
    ms: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """One model in one form (runner, weights, plan) and what its forwards cost; all rows pass the output head.

    weights is their format: "bfloat16", "int4". plan is a name: "full", "exit 8", "skip attention 3,5 mlp 7".
    """

    model: str
    runner: str
    weights: str
    plan: str
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError(f"the cost of {self.model} ({self.plan}) has no measured point; give at least one")
        for point in self.points:
            if point.rows < 1 or point.prefix < 0 or point.ms <= 0:
                raise ValueError(f"a measured point needs rows >= 1, prefix >= 0 and ms > 0, got {point}")

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, weights and plan: the key of a cost on one machine."""
        return self.model, self.weights, self.plan

    @property
    def prefixes(self) -> tuple[int, ...]:
        return tuple(sorted({point.prefix for point in self.points}))

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(sorted({point.rows for point in self.points}))

    def ms(self, rows: float, prefix: float | None = None) -> float:
        """Milliseconds of a forward of `rows` rows after `prefix` tokens, None for the shortest measured prefix.

        Interpolates linearly between the measured points. Above the most rows it extrapolates; below the fewest rows, and
        outside the measured prefixes, it takes the nearest value.
        """
        if rows <= 0:
            return 0.0
        return self._over(prefix, lambda length: self._at(length, rows))

    def best_rows(self, rows: int, prefix: float | None = None) -> int:
        """How many rows a forward of `rows` rows should be padded to: the fastest measured count, or rows itself.

        More rows count as faster if they are 5 % faster and the interquartile ranges of the two measurements don't overlap.
        """
        better = [count for count in self.rows if count > rows and self._gains(count, rows, prefix)]
        return min(better, key=lambda count: self.ms(count, prefix), default=rows)

    def padded(self) -> Cost:
        """The costs if each forward is padded to best_rows rows, as measured after the shortest prefix."""
        best = {rows: self.best_rows(rows) for rows in self.rows}
        return replace(self, points=tuple(replace(p, ms=self.ms(best[p.rows], p.prefix)) for p in self.points))

    def _gains(self, count: int, rows: int, prefix: float | None) -> bool:
        own, other = self.ms(rows, prefix), self.ms(count, prefix)
        apart = (self._spread(rows, prefix) + self._spread(count, prefix)) / 2
        return other <= min(own * (1 - PADDING_GAIN), own - apart)

    def _spread(self, rows: int, prefix: float | None) -> float:
        return self._over(prefix, lambda length: _between(self._line(length, lambda point: point.spread), rows))

    def _over(self, prefix: float | None, at: Callable[[int], float]) -> float:
        """A value between the measured prefixes, of its values there."""
        along = [(float(length), at(length)) for length in self.prefixes]
        return _between(along, self.prefixes[0] if prefix is None else prefix)

    def _at(self, prefix: int, rows: float) -> float:
        line = self._line(prefix, lambda point: point.ms)
        if len(line) > 1 and rows > line[-1][0]:
            (x, y), (last, ms) = line[-2:]
            return ms + max(ms - y, 0.0) / (last - x) * (rows - last)
        return _between(line, rows)

    def _line(self, prefix: int, value: Callable[[Point], float]) -> list[tuple[float, float]]:
        """(rows, value) of the points after a measured prefix, by rows."""
        return sorted((float(point.rows), value(point)) for point in self.points if point.prefix == prefix)


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a target (first), of its plans and of draft models."""

    costs: tuple[Cost, ...]

    def __post_init__(self) -> None:
        if not self.costs:
            raise ValueError("costs need at least one entry, the target's")

    @property
    def target(self) -> Cost:
        return self.costs[0]

    def of(self, plan: str = "full", model: str | None = None, weights: str | None = None) -> Cost:
        """The cost under a plan, of the target's model and weights unless named; UnsupportedOption if there is none."""
        wanted = (model or self.target.model, weights or self.target.weights, plan)
        for cost in self.costs:
            if cost.key == wanted:
                return cost
        known = ", ".join(" ".join(cost.key) for cost in self.costs)
        raise UnsupportedOption(f"no cost was measured for {' '.join(wanted)}; measured: {known}")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Costs:
        return cls(
            tuple(
                Cost(**{**cost, "points": tuple(Point(**point) for point in cost["points"])}) for cost in data["costs"]
            )
        )


def draft_ratio(target: Cost, draft: Cost, prefix: float | None = None) -> float:
    """c of the literature: a one-row forward of the draft over one of the target."""
    return draft.ms(1, prefix) / target.ms(1, prefix)


def predicted_speedup(
    target: Cost, tokens_per_round: float, k: float, c: float = 0.0, prefix: float | None = None
) -> float:
    """tokens per round / (k c + t(k + 1) / t(1)): the speed-up over plain decoding if only forwards cost time.

    k is the mean number of drafted tokens per round, c the cost ratio of one of them. Leviathan et al., arXiv 2211.17192,
    section 3.3, with the measured cost of a verification.
    """
    if k < 0 or c < 0:
        raise ValueError(f"k and c must be at least 0, got k {k} and c {c}")
    return tokens_per_round / (k * c + target.ms(k + 1, prefix) / target.ms(1, prefix))


def _between(line: list[tuple[float, float]], x: float) -> float:
    """The value at x of the straight lines through the sorted points; the nearest point's outside of them."""
    right = bisect_left(line, (x,))
    if right == 0:
        return line[0][1]
    if right == len(line):
        return line[-1][1]
    (x0, y0), (x1, y1) = line[right - 1], line[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
