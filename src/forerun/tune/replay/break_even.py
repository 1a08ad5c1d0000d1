"""Where a tree beats the chain: at which price of a drafter's forward, and of a further row of a forward.

Under constant costs the time of given rounds is linear in either price. A fixed length's rounds don't depend on the
costs, so two replays of each length give its lines, and the answer is where the lowest of them cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from ...traces.read import Trace
from .report import fixed_lengths
from .round_costs import RoundCosts, constant
from .simulate import Replay

MOST_C = MOST_ROWS = 1.0  # a drafter's forward costs as much as the target's, a further row as much as a forward
TIE = 1e-9
DIGITS = 9

Line = tuple[float, float]  # its height at 0, and its slope
Stretch = tuple[float, float]


@dataclass(frozen=True, slots=True)
class RoundTotals:
    """Totals of an answer's rounds: verifications and their further rows, the drafter's forwards and their further rows."""

    verifications: float
    rows: float
    forwards: float
    further: float

    def time(self, c: float, rows: float) -> float:
        """In verifications of one row; c and rows as round_costs.constant has them."""
        return self.verifications + rows * self.rows + c * (self.forwards + rows * self.further)

    def along_c(self, rows: float) -> Line:
        return self.time(0, rows), self.forwards + rows * self.further

    def along_rows(self, c: float) -> Line:
        return self.time(c, 0), self.rows + c * self.further


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where the best depth of the trees is faster than the best length of the chains and than plain decoding.

    over_c: the intervals of c in [0, MOST_C] at this price of a row; over_rows: those of the price in [0, MOST_ROWS] at
    this c.
    """

    c: float
    rows: float
    over_c: tuple[Stretch, ...]
    over_rows: tuple[Stretch, ...]


def break_even(trace: Trace, c: float, rows: float) -> BreakEven:
    """Of a trace that holds trees; raises ValueError where it holds chains alone."""
    trees, chains = (round_totals(trace, branches) for branches in (True, False))
    return BreakEven(
        c,
        rows,
        lower([one.along_c(rows) for one in trees], [one.along_c(rows) for one in chains], MOST_C),
        lower([one.along_rows(c) for one in trees], [one.along_rows(c) for one in chains], MOST_ROWS),
    )


def round_totals(trace: Trace, branches: bool) -> list[RoundTotals]:
    """Of every fixed length, from none at all to the trace's depth."""
    narrow, wide = (fixed_lengths(Replay(trace, constant(1, rows), branches)) for rows in (0, 1))
    found: list[RoundTotals] = []
    for one, other in zip(narrow, wide, strict=True):
        rounds, drafted = one.stats.rounds, one.stats.drafted
        forwards = 1e3 * one.seconds - rounds
        found.append(RoundTotals(rounds, drafted, forwards, 1e3 * (other.seconds - one.seconds) - drafted))
    return found


def lower(lines: Sequence[Line], others: Sequence[Line], most: float) -> tuple[Stretch, ...]:
    """The intervals of [0, most] in which one of the lines lies below all the others; ties don't count."""
    every = [*lines, *others]
    crossings = {(b - a) / (up - down) for (a, up), (b, down) in product(every, every) if up != down}
    corners = sorted({0.0, most, *(x for x in crossings if 0 < x < most)})
    found: list[Stretch] = []
    for left, right in pairwise(corners):
        middle = (left + right) / 2
        own, other = (min(start + slope * middle for start, slope in some) for some in (lines, others))
        if own >= other * (1 - TIE):
            continue
        if found and found[-1][1] == left:
            left = found.pop()[0]
        found.append((left, right))
    return tuple(found)


def ratios(costs: RoundCosts, rows: int) -> tuple[float, float]:
    """c, and the mean cost of each further row up to this many: constants instead of measured costs."""
    plain = costs.verify_ms(1, 0)
    further = max(costs.verify_ms(1 + rows, 0) / plain - 1, 0) / rows
    return round(costs.draft_ms(1, 0) / plain, DIGITS), round(further, DIGITS)


def sentences(found: BreakEven, name: str) -> list[str]:
    """The answer in words; name: of the drafter that branches."""
    over_c = _stretches(found.over_c, MOST_C)
    over_rows = _stretches(found.over_rows, MOST_ROWS)
    return [
        f"Where a further row costs {found.rows:.3g} of a forward, the {name} beats the best chain and plain decoding at "
        + (f"c {over_c}." if over_c else "no c."),
        f"At c={found.c:.3g} it does "
        + (f"where a further row costs {over_rows} of a forward." if over_rows else "at no price of a further row."),
    ]


def _stretches(found: Sequence[Stretch], most: float) -> str:
    return ", and ".join(
        f"from {low:.3g} on" if high == most else f"up to {high:.3g}" if low == 0 else f"from {low:.3g} to {high:.3g}"
        for low, high in found
    )
