"""Where the last tokens of a text stood before.

For the last one, two and three tokens the newest place is known, and from every place the one before it, so finding takes
the same time in any length of text. A token takes about 0.4 KB.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

SIZES = (3, 2, 1)
MOST_PLACES = 8
LONGEST = 32  # tokens up to which a match is measured
BITS = 32  # of a token in a key


@final
@dataclass(frozen=True, slots=True)
class Match:
    """ids[place:] followed the same `length` last tokens earlier."""

    ids: Sequence[int]
    place: int
    length: int


@final
class TextIndex:
    """A text that only grows."""

    def __init__(self) -> None:
        self.ids: array[int] = array("q")
        self._newest: tuple[dict[int, int], ...] = tuple({} for _ in SIZES)
        self._before: tuple[array[int], ...] = tuple(array("q") for _ in SIZES)

    def __len__(self) -> int:
        return len(self.ids)

    def extend(self, tokens: Sequence[int]) -> None:
        ids = self.ids
        known = ids[1 - SIZES[0] :]
        for token in tokens:
            place = len(ids)
            ids.append(token)
            known.append(token)
            for size, newest, before in zip(SIZES, self._newest, self._before, strict=True):
                if place + 1 < size:
                    before.append(-1)
                    continue
                key = _key(known, size)
                before.append(newest.get(key, -1))
                newest[key] = place
            if len(known) >= SIZES[0]:
                del known[0]

    def matches(self, text: Sequence[int]) -> list[Match]:
        """Places where the most of these sizes of the text's last tokens stood, the newest first."""
        for size, newest, before in zip(SIZES, self._newest, self._before, strict=True):
            if size > len(text):
                continue
            place = newest.get(_key(text, size), -1)
            found: list[Match] = []
            while place >= 0 and len(found) < MOST_PLACES:
                found.append(Match(self.ids, place + 1, self._length(text, place, size)))
                place = before[place]
            if found:
                return found
        return []

    def _length(self, text: Sequence[int], place: int, length: int) -> int:
        """How many tokens up to this place equal the text's last ones."""
        most = min(LONGEST, place + 1, len(text))
        while length < most and self.ids[place - length] == text[-1 - length]:
            length += 1
        return length


def _key(text: Sequence[int], size: int) -> int:
    """Of the last tokens: one number, which takes less room than a tuple."""
    key = text[-1]
    for back in range(2, size + 1):
        key = key << BITS | text[-back]
    return key
