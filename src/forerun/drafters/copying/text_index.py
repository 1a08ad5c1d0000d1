"""Where the last tokens of a text stood before.

For the last one, two and three tokens the newest place is known, and from every place the one before it, so finding takes
the same time in any length of text. A token takes .1 to .2 KB.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple, final

SIZES = (1, 2, 3)
MOST_PLACES = 8
LONGEST = 32  # tokens up to which a match is measured
BITS = 32  # of a token in a key


@final
class Match(NamedTuple):
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
        self._indexes = tuple(zip(self._newest, self._before, strict=True))

    def __len__(self) -> int:
        return len(self.ids)

    def extend(self, tokens: Sequence[int]) -> None:
        ids, indexes = self.ids, self._indexes
        for token in tokens:
            place = back = len(ids)
            ids.append(token)
            key = token
            for newest, before in indexes:
                if back < 0:
                    before.append(-1)
                    continue
                before.append(newest.get(key, -1))
                newest[key] = place
                back -= 1
                key = key << BITS | ids[back]

    def knows(self, token: int) -> bool:
        """Whether it stands anywhere, as it must for a match of a text that ends so."""
        return token in self._newest[0]

    def matches(self, text: Sequence[int], keys: Sequence[int] = (), ids: Sequence[int] | None = None) -> list[Match]:
        """Places where the most of these sizes of the text's last tokens stood, the newest first.

        keys: keys_of(text). ids: the text that is indexed, where it has gone on meanwhile.
        """
        keys, ids = keys or keys_of(text), self.ids if ids is None else ids
        for size in range(len(keys) if self.ids else 0, 0, -1):
            before = self._before[size - 1]
            place = self._newest[size - 1].get(keys[size - 1], -1)
            found: list[Match] = []
            while place >= 0 and len(found) < MOST_PLACES:
                found.append(Match(ids, place + 1, self._length(text, place, size)))
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


def keys_of(text: Sequence[int]) -> list[int]:
    """Of its last token, of the last two and of the last three: numbers, which take less room than tuples."""
    keys = [text[-1]] if text else []
    for size in SIZES[1 : len(text)]:
        keys.append(keys[-1] << BITS | text[-size])
    return keys
