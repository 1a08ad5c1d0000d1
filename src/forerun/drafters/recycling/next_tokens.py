"""The model's own best next tokens, kept for its last token and for its last two.

What is known of two tokens says more, where it is there. Both tables have a fixed number of places, of 48 bytes each; what
is kept anew takes the place of what was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import final

import numpy as np

from .best_tokens import MOST, Ranking

SHARES = 8  # into how many steps a token's share is rounded
NO_TOKEN = -1


@final
@dataclass(frozen=True, slots=True)
class NextTokens:
    """The best first, each with its share, 0 to SHARES - 1. pair: they followed both tokens, and not just the last."""

    tokens: Sequence[int]
    shares: Sequence[int]
    pair: bool


@final
class NextTokenTable:
    """Of a vocabulary, and of up to `pairs` pairs of tokens. Threads may share it."""

    def __init__(self, vocabulary: int, pairs: int) -> None:
        self._first_pair = vocabulary
        self._pairs = pairs
        places = vocabulary + pairs
        self._tokens = np.full((places, MOST), NO_TOKEN, np.int32)
        self._shares = np.zeros((places, MOST), np.int8)
        self._before = np.full(places, NO_TOKEN, np.int32)  # which pair has the place
        self._last = np.full(places, NO_TOKEN, np.int32)
        self._lock = Lock()

    def find(self, before: int, token: int) -> NextTokens | None:
        """What followed these two tokens, else what followed the second one."""
        if self._pairs:
            place = self._place(before, token)
            if self._last[place] == token and self._before[place] == before:
                return self._at(place, pair=True)
        return self._at(token, pair=False) if self._last[token] == token else None

    def put(self, before: int, token: int, ranking: Ranking) -> None:
        """A row that follows these two tokens has these best ones."""
        spare = MOST - len(ranking)
        tokens = [token for token, _ in ranking] + [NO_TOKEN] * spare
        shares = [min(int(share * SHARES), SHARES - 1) for _, share in ranking] + [0] * spare
        places = (token, self._place(before, token)) if self._pairs else (token,)
        with self._lock:
            for place in places:
                self._tokens[place] = tokens
                self._shares[place] = shares
                self._before[place], self._last[place] = before, token

    def _place(self, before: int, token: int) -> int:
        return self._first_pair + hash((before, token)) % self._pairs

    def _at(self, place: int, pair: bool) -> NextTokens:
        tokens: list[int] = self._tokens[place].tolist()
        shares: list[int] = self._shares[place].tolist()
        if NO_TOKEN in tokens:  # a small vocabulary
            del tokens[tokens.index(NO_TOKEN) :]
        return NextTokens(tokens, shares[: len(tokens)], pair)
