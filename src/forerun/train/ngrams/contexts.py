"""What followed each context of a model's answers, counted in sorted arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ...models.files.ngram_keys import FACTOR, MIX
from ..data.examples import Example

Array = NDArray[Any]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The tokens of answers, each with its contexts. keys [longest, n]: of the last token, of the last two and so on.

    there [longest, n]: whether the text begins before the context does. next [n] is the token itself.
    """

    keys: Array
    there: Array
    next: Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class Followers:
    """Of each context of one length, keys ascending: the token that followed most often, how often, of how many.

    place [n]: where in Places such a context stands.
    """

    keys: Array
    tokens: Array
    counts: Array
    totals: Array
    place: Array


def places_of(examples: Sequence[Example], longest: int) -> Places:
    """All tokens that are learnt; their contexts may begin in the prompt."""
    ids = np.concatenate([np.asarray(one.ids, np.uint64) for one in examples])
    sizes = np.array([len(one.ids) for one in examples])
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)
    learnt = np.concatenate([np.arange(len(one.ids)) >= one.start for one in examples])
    at = np.flatnonzero(learnt)
    state = np.zeros(len(at), np.uint64)
    keys = np.zeros((longest, len(at)), np.uint32)
    there = np.zeros((longest, len(at)), bool)
    for length in range(1, longest + 1):
        before = at - length
        there[length - 1] = before >= start[at]
        state = (state + ids[np.maximum(before, 0)] + np.uint64(1)) * np.uint64(FACTOR)
        keys[length - 1] = ((state ^ state >> np.uint64(29)) * np.uint64(MIX) >> np.uint64(32)).astype(np.uint32)
    return Places(keys, there, ids[at].astype(np.int64))


def followers(places: Places, length: int) -> Followers:
    """Of the contexts of this length."""
    at = np.flatnonzero(places.there[length - 1])
    both = places.keys[length - 1, at].astype(np.uint64) << np.uint64(32) | places.next[at].astype(np.uint64)
    pairs, index, counts = np.unique(both, return_index=True, return_counts=True)
    keys = (pairs >> np.uint64(32)).astype(np.uint32)
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    if not len(keys):
        first = first[:0]
    group = np.cumsum(np.bincount(first, minlength=len(keys))) - 1
    # within a context the most frequent comes first
    order = np.lexsort((-counts, group))
    best = order[first]
    totals = np.add.reduceat(counts, first) if len(first) else counts
    tokens = (pairs[best] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return Followers(keys[first], tokens, counts[best], totals, at[index[best]])
