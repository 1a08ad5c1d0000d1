"""What a request's rows cost where its forwards are shared with others.

A forward of R rows takes about a + b R. A request that looks at its own rounds sees its own rows add b to what the others
make long anyway, so they look free; but all requests wait for them. So what counts is a request's part of everyone's time:
a / n for each of n requests, and b for each row of its own. Then the draft length that is best for each is best for all.
What others draft is in their parts alone: in a request's own part, it would make its plain rounds look dear and its drafts
cheap beside them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from statistics import median
from typing import final

from ...core.values import Pack, Round
from .cost_line import Line, line_through

NEWEST = 32
STEP = 4  # that many row counts are taken together


@final
class PackCosts:
    """Learnt from rounds. shared: whether the newest round's forward was."""

    def __init__(self) -> None:
        self.shared = False
        self.known = 0  # forwards that were learnt from
        self._seen: dict[int, deque[tuple[int, float]]] = {}
        self._line: Line | None = None
        self._last: Pack | None = None
        self._requests = 1

    def learn(self, round: Round) -> bool:
        """Whether the round's cost is known; it isn't where a long text was read in the same forward."""
        pack = round.timing.pack
        self.shared = pack is not None
        if pack is None:
            return True
        if pack.reading:
            return False
        self._requests = pack.requests
        if pack is not self._last:  # the others learn from the same one
            self._last = pack
            # what runs between two forwards is waited for by all, too
            self._add(pack.rows, pack.seconds + pack.requests * (round.timing.decide + round.timing.keep))
        return True

    def verify(self, rows: int) -> float:
        """The part of everyone's time that a verification of so many rows takes, among as many requests as the newest's."""
        if self._line is None:
            self._line = line_through(dict(map(_point, self._seen.values())))
        return self._line.at(self._requests) / self._requests + self._line.slope * (rows - 1)

    def _add(self, rows: int, seconds: float) -> None:
        self._seen.setdefault(max(rows // STEP, 1), deque(maxlen=NEWEST)).append((rows, seconds))
        self._line = None
        self.known += 1


def _point(seen: Collection[tuple[int, float]]) -> tuple[float, tuple[float, float]]:
    """Mean rows, and the median of the seconds with its weight."""
    return sum(rows for rows, _ in seen) / len(seen), (median(seconds for _, seconds in seen), float(len(seen)))


def draft_seconds(round: Round) -> float:
    """The draft's part of everyone's time: in company its forwards count by its rows, without the wait for others."""
    timing = round.timing
    return timing.draft_forward if timing.pack is not None and timing.draft_forward else timing.draft
