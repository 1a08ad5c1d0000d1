"""Earlier answers of an engine, bounded: texts of other requests to draft from.

They are kept in two halves. When the newer half is full it becomes the older one, and the answers of the older one are
forgotten, so that adding never stops to tidy up.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import final

from .text_index import Match, TextIndex

END = -1  # between two answers: no token, so nothing is continued beyond


@final
class History:
    """Up to `most` tokens of answers, 0 for none. Threads may share it. empty: nothing was remembered yet."""

    def __init__(self, most: int) -> None:
        self.empty = True
        self._most = most
        self._halves = TextIndex(), TextIndex()
        self._lock = Lock()

    def __len__(self) -> int:
        return sum(map(len, self._halves))

    def add(self, answer: Sequence[int]) -> None:
        """Remember an answer, or its end where the whole doesn't fit."""
        half = self._most // 2
        kept = answer[-(half - 1) :] if half > 1 else ()
        if not kept:
            return
        with self._lock:
            newer = self._halves[1]
            if len(newer) + len(kept) + 1 > half:
                newer = TextIndex()
                self._halves = self._halves[1], newer
            newer.extend([*kept, END])
            self.empty = False

    def knows(self, token: int) -> bool:
        """Whether it stands in an answer, as it must for a match of a text that ends so."""
        older, newer = self._halves
        return newer.knows(token) or older.knows(token)

    def matches(self, text: Sequence[int], keys: Sequence[int] = ()) -> list[Match]:
        """Of both halves, the newer one first. keys: keys_of(text)."""
        older, newer = self._halves
        return [*newer.matches(text, keys), *older.matches(text, keys)]
