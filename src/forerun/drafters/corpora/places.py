"""The places of a corpus that share the most last tokens with a text, found in files that are mapped into memory.

A token takes two bytes or four, the lower ones first. So the bytes of an ending in reverse are in the order of its tokens
read backwards, and endings are compared as they lie in the file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from mmap import mmap
from struct import pack
from typing import final

from ..copying.text_index import Match
from .ordering import LONGEST

MOST_PLACES = 8
FOLLOWING = 32  # tokens that are read of a place


@final
class Places:
    """text: the tokens, with the size of the vocabulary after each text. order: all places by their endings. first: where
    those of a last token begin in order, of each token and of the end of a text, and where the last ones end. width: bytes
    of a token.
    """

    __slots__ = ("_first", "_order", "_text", "_tokens", "_vocabulary", "_width")

    def __init__(self, text: mmap | bytes, order: mmap | bytes, first: Sequence[int], width: int) -> None:
        self._text, self._width = text, width
        self._tokens = memoryview(text).cast("H" if width == 2 else "I")
        self._order = memoryview(order).cast("I")
        self._first, self._vocabulary = first, len(first) - 2

    def __len__(self) -> int:
        return len(self._tokens)

    def matches(self, text: Sequence[int]) -> list[Match]:
        """Some places that share the most last tokens with the text, from all of their range, and what follows them."""
        low, high = self._first[text[-1]], self._first[text[-1] + 1]
        if low >= high:
            return []
        order, ending = self._order, self._ending
        last = text[-LONGEST:]
        wanted = pack(f"<{len(last)}{'H' if self._width == 2 else 'I'}", *last)[::-1]
        near = bisect_left(order, wanted, low, high, key=ending)
        length = max(_shared(wanted, ending(order[at])) for at in (near - 1, near) if low <= at < high) // self._width
        if length > 1:
            low, high = self._range(wanted[: length * self._width], low, near, high)
        count = high - low
        if count <= MOST_PLACES:
            chosen = order[low:high].tolist()
        else:
            chosen = [order[low + count * number // MOST_PLACES] for number in range(MOST_PLACES)]
        return [Match(self._following(place + 1), 0, length) for place in chosen]

    def _range(self, begun: bytes, low: int, near: int, high: int) -> tuple[int, int]:
        """Of low..high, those around `near` whose endings begin so. Few are looked at where these are few."""
        order, ending, count = self._order, self._ending, len(begun)
        step = 1
        while near - step >= low and ending(order[near - step]) >= begun:
            step *= 2
        begin = bisect_left(order, begun, max(near - step, low), near - step // 2, key=ending)
        step = 1
        while near + step < high and ending(order[near + step])[:count] == begun:
            step *= 2
        after = begun + b"\xff" * self._width * LONGEST
        return begin, bisect_left(order, after, near + step // 2, min(near + step, high), key=ending)

    def _ending(self, place: int) -> bytes:
        """The bytes of the tokens up to a place, the last one first."""
        end = (place + 1) * self._width
        return self._text[max(end - LONGEST * self._width, 0) : end][::-1]

    def _following(self, place: int) -> list[int]:
        """The tokens from a place on, up to the end of its text."""
        read: list[int] = self._tokens[place : place + FOLLOWING].tolist()
        if read and max(read) >= self._vocabulary:
            return read[: next(at for at, token in enumerate(read) if token >= self._vocabulary)]
        return read


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes at the beginning are equal."""
    count = min(len(one), len(other))
    differing = int.from_bytes(one[:count]) ^ int.from_bytes(other[:count])
    return count - (differing.bit_length() + 7) // 8
