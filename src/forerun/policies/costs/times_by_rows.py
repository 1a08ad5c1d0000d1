"""How long something took by its number of rows: medians of the newest times, and a line through them for other numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import final

from .cost_line import FIRST_SLOPE, Line, line_through

NEWEST = 32
LINE_WORTH = 3.0  # the line counts as so many times of a number of rows
# where so many are known that one changes little, a round mustn't wait for medians: one in so many is taken then, and
# medians and line are made anew when so large a part of a number's times is new
SELDOM, RENEWED = 4, 1 / 8


@final
class TimesByRows:
    """slope: of the line before anything was seen, a row, in times of one row."""

    def __init__(self, slope: float = FIRST_SLOPE) -> None:
        self._first_slope = slope
        self._seen: dict[float, deque[float]] = {}
        self._points: dict[float, tuple[float, float]] = {}
        self._unread: dict[float, None] = {}  # rows whose newest times the points don't hold yet
        self._line: Line | None = None
        self._known: dict[float, float] = {}
        self._passed = self._fresh = 0

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, rows: float, time: float) -> bool:
        """Whether of and line may give other times from now on."""
        seen = self._seen.get(rows)
        if seen is None:
            seen = self._seen[rows] = deque(maxlen=NEWEST)
        if len(seen) == NEWEST and self._passed < SELDOM - 1:
            self._passed += 1
            return False
        self._passed = 0
        seen.append(time)
        self._unread[rows] = None
        self._fresh += 1
        if self._fresh < RENEWED * len(seen):
            return False
        self._fresh = 0
        self._line = None
        self._known.clear()
        return True

    @property
    def points(self) -> Mapping[float, tuple[float, float]]:
        """rows -> (the median, of how many times)."""
        for rows in self._unread:
            seen = self._seen[rows]
            self._points[rows] = median(seen), float(len(seen))
        self._unread.clear()
        return self._points

    def of(self, rows: float) -> float:
        """1 before anything was seen."""
        if not self._seen:
            return 1.0
        if rows not in self._known:
            own, tries = self.points.get(rows, (0.0, 0.0))
            self._known[rows] = (own * tries + self.line.at(rows) * LINE_WORTH) / (tries + LINE_WORTH)
        return self._known[rows]

    @property
    def line(self) -> Line:
        if self._line is None:
            self._line = line_through(self.points, self._first_slope)
        return self._line
