"""What a table of n-grams knows to follow the last tokens of a text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from ...core.identity import Identity
from ...models.files.ngram_keys import STEPS, keys_of
from .continuations import Vote

if TYPE_CHECKING:
    from ...models.files.ngrams import NgramFile


@final
class NgramVotes:
    """Searched by bisection: some microseconds a token. It holds 9 bytes a context."""

    def __init__(self, table: NgramFile) -> None:
        self.longest = table.longest
        # memory views: an element is read as a plain int, not as a scalar of numpy
        self._keys = table.keys.numpy().astype(np.uint32).data
        self._tokens = table.tokens.numpy().astype(np.int32).data
        self._likely = table.likely.numpy().astype(np.uint8).data

    def after(self, end: Sequence[int]) -> Vote | None:
        """Of the longest context that is known: its length, and as share how likely the token was on held-out answers.

        places is 0: no place of a text says so.
        """
        keys, held = keys_of(end, self.longest), self._keys
        for length in range(len(keys), 0, -1):
            place = bisect_left(held, keys[length - 1])
            if place < len(held) and held[place] == keys[length - 1]:
                return Vote(self._tokens[place], self._likely[place] / STEPS, 0, length)
        return None


def open_votes(table: str, target: Identity) -> NgramVotes:
    """Of a table by its directory or known name; a directory that is there stands before a name.

    Raises ModelNotFound, InvalidModelFile, and UnsupportedOption on a table of another tokenizer.
    """
    # here, since other engines' Pythons may have all that drafting takes but not what finding a table takes
    from ...models.files.known_tables import known_table
    from ...models.files.ngrams import read_ngrams

    path = Path(table).expanduser()
    file = read_ngrams(path if path.exists() else known_table(table) or path)
    file.check_target(target)
    return NgramVotes(file)
