"""How a table of n-grams names its contexts: by keys of 32 bits, two of which are seldom the same."""

from __future__ import annotations

from collections.abc import Sequence

FACTOR, MIX, WORD = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 2**64 - 1
STEPS = 255  # in which a probability is kept


def keys_of(end: Sequence[int], longest: int) -> list[int]:
    """Of the last token, of the last two and so on: the keys of these contexts.

    train/ngrams/contexts.py computes the same ones of whole arrays.
    """
    keys: list[int] = []
    state = 0
    for token in reversed(end[-longest:]):
        state = (state + token + 1) * FACTOR & WORD
        keys.append((state ^ state >> 29) * MIX >> 32 & 0xFFFFFFFF)
    return keys
