"""A piece of a corpus in the memory map: its tokens, its places in the order of their endings, where each token's begin."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from numpy.typing import NDArray

from ..copying.text_index import LONGEST, Match

MOST_PLACES = 8
FOLLOWING = 32  # tokens that are read of a place


@final
@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """tokens [n], with the size of the vocabulary after each text; order [n]; first [vocabulary + 2], where the places of
    a last token begin in order.
    """

    tokens: NDArray[Any]
    order: NDArray[Any]
    first: NDArray[Any]

    def matches(self, text: Sequence[int]) -> list[Match]:
        """Some places that share the most last tokens with the text, and what follows them."""
        low, high = int(self.first[text[-1]]), int(self.first[text[-1] + 1])
        if low >= high:
            return []
        wanted = list(text[-LONGEST:])[::-1]
        near = bisect_left(self.order, wanted, low, high, key=self._ending)
        length = max(
            _shared(wanted, self._ending(self.order[place])) for place in (near - 1, near) if low <= place < high
        )
        wanted = wanted[:length]
        begin = bisect_left(self.order, wanted, low, near, key=lambda place: self._ending(place)[:length])
        end = bisect_right(self.order, wanted, near, high, key=lambda place: self._ending(place)[:length])
        step = max((end - begin) / MOST_PLACES, 1.0)
        chosen = (self.order[begin + int(step * number)] for number in range(min(end - begin, MOST_PLACES)))
        return [Match(self._following(int(place)), 0, length) for place in chosen]

    def _ending(self, place: Any) -> list[int]:
        end = int(place) + 1
        read: list[int] = self.tokens[max(end - LONGEST, 0) : end].tolist()
        read.reverse()
        return read

    def _following(self, place: int) -> list[int]:
        """The tokens after a place, up to the end of its text."""
        read: list[int] = self.tokens[place + 1 : place + 1 + FOLLOWING].tolist()
        vocabulary = len(self.first) - 2
        return next((read[:at] for at, token in enumerate(read) if token >= vocabulary), read)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens at the beginning are equal."""
    both = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(both) if a != b), min(len(one), len(other)))
