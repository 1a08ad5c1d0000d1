"""Finds the first stop string that a growing text completes, as if tokens came one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import final


@final
class _Searched:
    """The end of a text in which stop strings are looked for, character by character: what may still become one.

    places tells for each character how long the shown text before it is.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._longest = max(map(len, stop), default=1)
        self._text = ""
        self._places: list[int] = []
        self._unsure = ""
        self._unsure_places: list[int] = []

    def add(self, text: str, unsure: str, start: int, end: int) -> None:
        """text, in the place of what was unsure before, then what is unsure now.

        What is new ends where the shown text ends, at place `end`, and doesn't begin before `start`.
        """
        fresh = text + unsure
        known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(fresh, self._unsure, strict=False)))
        new = [max(start, end - left) for left in range(len(fresh) - known, 0, -1)]
        places = self._unsure_places[:known] + new
        self._text += text
        self._places += places[: len(text)]
        self._unsure, self._unsure_places = unsure, places[len(text) :]

    def hits(self) -> Iterator[tuple[int, int, str]]:
        """Each stop string that is complete: how many characters follow, negated; its place; itself."""
        text, places = self._text + self._unsure, self._places + self._unsure_places
        for stop in self._stop:
            start = text.find(stop)
            if start >= 0:
                yield start + len(stop) - len(text), places[start], stop

    def trim(self, end: int) -> int:
        """The place from which on the text may begin a stop string, `end` if nowhere; what comes before is forgotten."""
        for size in range(min(self._longest - 1, len(self._text)), 0, -1):
            if any(stop.startswith(self._text[-size:]) for stop in self._stop):
                break
        else:
            size = 0
        self._text, self._places = self._text[len(self._text) - size :], self._places[len(self._places) - size :]
        return self._places[0] if size else end


@final
class StopScanner:
    """Finds the first completed stop string in growing text, and holds back what may become one.

    marked: those that are looked for in the text with its special tokens, which comes beside the text to be shown. looks:
    whether there is any; without, text passes unchanged.
    """

    def __init__(self, stop: Sequence[str], marked: Sequence[str] = ()) -> None:
        if any(not text for text in (*stop, *marked)):
            raise ValueError("a stop string must not be empty")
        self.found: str | None = None
        self._plain = _Searched(stop)
        self._marked = _Searched(marked)
        self.looks = bool(stop or marked)
        self._held = ""
        self._shown = 0
        self._end = 0  # of the text so far, the unsure one with it

    def push(self, text: str, marked: str = "", unsure: str = "", unsure_marked: str = "") -> str:
        """The text that is safe to show. Once `found` is set, everything from the stop string on is gone.

        marked is the same text with special tokens. What is unsure may complete a stop string already, and comes again
        once it is certain.
        """
        if not self.looks:
            return text
        self._held += text
        certain = self._shown + len(self._held)
        before, self._end = self._end, certain + len(unsure)
        self._plain.add(text, unsure, 0, self._end)
        self._marked.add(marked, unsure_marked, min(before, self._end), self._end)
        hits = [*self._plain.hits(), *self._marked.hits()]
        if hits:
            # the earliest completion wins; of two that end together, the longer
            _, place, self.found = min(hits)
            shown, self._held = self._held + unsure, ""
            return shown[: place - self._shown]
        place = min(self._plain.trim(certain), self._marked.trim(certain), certain)
        safe = place - self._shown
        shown, self._held, self._shown = self._held[:safe], self._held[safe:], place
        return shown

    def flush(self) -> str:
        shown, self._held = self._held, ""
        return shown
