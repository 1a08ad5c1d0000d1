"""The places of a text, sorted by the tokens that end there, read backwards.

Places whose endings agree on many tokens stand side by side, so the longest match of another text's end is found by one
binary search. It is a suffix array of the reversed text, as far as matches are measured, and it is made piece by piece: a
pass over the text gathers the places whose last tokens lie in a range, and only these are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 16  # tokens up to which a match is measured
READ = 1 << 22  # tokens of the text that are looked at at once

Places = NDArray[np.uint32]


def order_by_endings(tokens: NDArray[Any], most: int) -> Iterator[Places]:
    """Sorted by tokens[place], tokens[place - 1], ... up to LONGEST of them; a text that begins comes first.

    It comes in pieces of at most `most` places, of which each takes some 50 bytes while its piece is sorted. tokens may be
    mapped; they are below 2**32 - 1.
    """
    yield from _begun_with((), tokens, most)


def _begun_with(ending: tuple[int, ...], tokens: NDArray[Any], most: int) -> Iterator[Places]:
    """The places whose last tokens, read backwards, begin so, in order."""
    if len(ending) == LONGEST:
        yield from _places(tokens, ending[:-1], ending[-1], ending[-1] + 1)
        return
    if ending and ending == tuple(tokens[: len(ending)][::-1].tolist()):
        yield np.asarray([len(ending) - 1], np.uint32)  # the text begins here
    counts = _counts(tokens, ending)
    low = 0
    while low < len(counts):
        sums = np.cumsum(counts[low:])
        high = low + int(np.searchsorted(sums, most, "right"))
        if high == low:  # one more token alone has too many places
            yield from _begun_with((*ending, low), tokens, most)
            low += 1
        elif sums[high - low - 1]:
            yield _sorted(tokens, np.concatenate(list(_places(tokens, ending, low, high))), len(ending))
            low = high
        else:
            low = high


def _places(tokens: NDArray[Any], ending: tuple[int, ...], low: int, high: int) -> Iterator[Places]:
    """Where these tokens stand, read backwards, after one of low..high - 1; each piece of the text by itself."""
    for begin, found in _found(tokens, ending):
        wanted = tokens[begin - len(ending) : begin - len(ending) + len(found)]
        yield (np.flatnonzero(found & (wanted >= low) & (wanted < high)) + begin).astype(np.uint32)


def _counts(tokens: NDArray[Any], ending: tuple[int, ...]) -> NDArray[np.int64]:
    """How often each token stands before an ending."""
    counts = np.zeros(1, np.int64)
    for begin, found in _found(tokens, ending):
        before = tokens[begin - len(ending) : begin - len(ending) + len(found)]
        own = np.bincount(before[found], minlength=len(counts))
        own[: len(counts)] += counts
        counts = own
    return counts


def _found(tokens: NDArray[Any], ending: tuple[int, ...]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Pieces of the text by where they begin: whether an ending that has a token before it stands at each place."""
    for begin in range(len(ending), len(tokens), READ):
        end = min(begin + READ, len(tokens))
        found = np.ones(end - begin, np.bool_)
        for back, token in enumerate(ending):
            found &= tokens[begin - back : end - back] == token
        yield begin, found


def _sorted(tokens: NDArray[Any], places: Places, known: int) -> Places:
    """places, whose last `known` tokens agree, by the tokens before these."""
    bits = int(tokens.dtype.itemsize) * 8
    wide, narrow = 64 // bits, 32 // bits
    key = _key(tokens, places, known, wide, bits)
    order = np.argsort(key)
    places, key = places[order], key[order]
    read = known + wide
    group = np.cumsum(np.concatenate(([False], key[1:] != key[:-1])), dtype=np.uint32)
    where = np.arange(len(places))
    while read < LONGEST:
        alone = np.concatenate(([True], group[1:] != group[:-1], [True]))
        tied = ~(alone[1:] & alone[:-1])
        where, group = where[tied], group[tied]
        if not len(where):
            break
        own = places[where]
        key = group.astype(np.uint64) << np.uint64(32) | _key(tokens, own, read, narrow, bits)
        order = np.argsort(key)
        places[where], key = own[order], key[order]
        group = np.cumsum(np.concatenate(([False], key[1:] != key[:-1])), dtype=np.uint32)
        read += narrow
    return places


def _key(tokens: NDArray[Any], places: Places, back: int, count: int, bits: int) -> NDArray[np.uint64]:
    """So many tokens before each place as one number, 0 for those before the beginning."""
    key = np.zeros(len(places), np.uint64)
    for more in range(back, back + count):
        at = places.astype(np.int64) - more
        key <<= np.uint64(bits)
        key |= np.where(at < 0, 0, tokens[np.maximum(at, 0)].astype(np.uint64) + np.uint64(1))
    return key
