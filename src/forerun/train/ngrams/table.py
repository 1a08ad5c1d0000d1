"""Builds a table of n-grams: how likely the most frequent follower of a context is the model's next token.

Answers are split. How often followers from the one part were right in the other is counted by what is known of them: the
length of the context, how often it came, and the follower's share. That is what the table says of a follower like it. What
shorter contexts say as well is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.identity import Identity
from ...models.files.ngram_keys import STEPS
from ...models.files.ngrams import LONGEST, NgramFile
from ..data.examples import Example, fingerprint, split
from .contexts import Followers, Places, followers, places_of

TIMES = (2, 3, 5, 17)  # how often a context came: bounds of the classes
SHARES = 5
PRIOR = 8.0  # tokens, of which half the share counts as right
NEWS = 0.15  # a probability that differs less from a shorter context's is no news
LEAST = 0.2  # nothing is said of tokens that are less likely
SEED = 0

Array = NDArray[Any]


@final
@dataclass(frozen=True, slots=True)
class Judged:
    """Held-out answers: how many tokens, the share of which was the table's, and of those that it was sure of by half."""

    tokens: int
    right: float
    sure: float
    right_of_sure: float


def build_table(
    examples: Sequence[Example], target: Identity, longest: int = 4, held_out: float = 0.1, model: str = ""
) -> tuple[NgramFile, Judged]:
    """A table of contexts of up to `longest` tokens, and how right one of the learnt part alone is on held-out answers.

    Raises ValueError where fewer than two different answers are given, held_out isn't within (0, 1), longest isn't one of
    1..8, or nothing came often enough to be said.
    """
    if not 1 <= longest <= LONGEST:
        raise ValueError(f"the longest context must be of 1..{LONGEST} tokens, got {longest}")
    learn, held = split(examples, held_out, SEED)
    known, asked = places_of(learn, longest), places_of(held, longest)
    likely = _calibrated([followers(known, length) for length in range(1, longest + 1)], asked)
    judged = _judged(_chosen(known, likely, longest), asked)
    keys, tokens, shares = _chosen(places_of(examples, longest), likely, longest).arrays()
    if not len(keys):
        raise ValueError(f"no token is likely enough after any context of {len(examples)} answers; give more of them")
    trained = {
        "model": model,
        "answers": len(examples),
        "tokens": int(len(known.next) + len(asked.next)),
        "data": fingerprint(examples),
    }
    file = NgramFile(
        target,
        longest,
        torch.from_numpy(keys.astype(np.int64)),
        torch.from_numpy(tokens.astype(np.int64)),
        torch.from_numpy(np.rint(shares * STEPS).astype(np.int64)),
        judged.right,
        {**trained, "held_out": held_out},
    )
    return file, judged


def _kinds(one: Followers, length: int) -> Array:
    """The class of each follower, a whole number."""
    share = np.minimum(one.counts * SHARES // one.totals, SHARES - 1)
    kinds: Array = (length * (len(TIMES) + 1) + np.digitize(one.totals, TIMES)) * SHARES + share
    return kinds


@final
class _Entries:
    """Entries by context length, and what they say of places."""

    def __init__(self) -> None:
        self._parts: list[tuple[Array, Array, Array]] = []

    def add(self, keys: Array, tokens: Array, shares: Array) -> None:
        """Of contexts one token longer than those before; keys ascend."""
        self._parts.append((keys, tokens, shares))

    def of(self, places: Places) -> tuple[Array, Array]:
        """The token and its probability by the longest context that is known; -1 and 0 where none is."""
        tokens, shares = np.full(len(places.next), -1), np.zeros(len(places.next))
        for row, part in enumerate(self._parts):
            _update(tokens, shares, part, places, row)
        return tokens, shares

    def arrays(self) -> tuple[Array, Array, Array]:
        """All of them by key, each key once: of two contexts with one key the likelier."""
        keys, tokens, shares = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.lexsort((-shares, keys))
        keys, tokens, shares = keys[order], tokens[order], shares[order]
        once = np.ones(len(keys), bool)
        once[1:] = keys[1:] != keys[:-1]
        return keys[once], tokens[once], shares[once]


def _update(tokens: Array, shares: Array, part: tuple[Array, Array, Array], places: Places, row: int) -> None:
    """What contexts of row + 1 tokens say of places, in place of what shorter ones said."""
    keys, followed, likely = part
    if not len(keys):
        return
    found = np.minimum(np.searchsorted(keys, places.keys[row]), len(keys) - 1)
    known = places.there[row] & (keys[found] == places.keys[row])
    tokens[known], shares[known] = followed[found[known]], likely[found[known]]


def _calibrated(levels: Sequence[Followers], asked: Places) -> dict[int, float]:
    """Class -> share of its followers that were right in held-out answers, where no longer context was known."""
    kinds, right = np.full(len(asked.next), -1), np.zeros(len(asked.next), bool)
    shares = np.zeros(len(asked.next))
    for row, level in enumerate(levels):
        if not len(level.keys):
            continue
        found = np.minimum(np.searchsorted(level.keys, asked.keys[row]), len(level.keys) - 1)
        known = asked.there[row] & (level.keys[found] == asked.keys[row])
        at = found[known]
        kinds[known] = _kinds(level, row + 1)[at]
        right[known] = level.tokens[at] == asked.next[known]
        shares[known] = (level.counts / level.totals)[at]
    likely: dict[int, float] = {}
    for kind in np.unique(kinds[kinds >= 0]):
        at = kinds == kind
        guess = shares[at].mean() / 2
        likely[int(kind)] = float((right[at].sum() + PRIOR * guess) / (at.sum() + PRIOR))
    return likely


def _chosen(places: Places, likely: dict[int, float], longest: int) -> _Entries:
    """The followers that say something new, the shortest contexts first."""
    entries = _Entries()
    tokens, shares = np.full(len(places.next), -1), np.zeros(len(places.next))
    for length in range(1, longest + 1):
        level = followers(places, length)
        # of classes that no held-out answer had, nothing is known
        says = np.array([likely.get(int(kind), np.nan) for kind in _kinds(level, length)])
        before, shorter = tokens[level.place], shares[level.place]
        news = (np.abs(says - shorter) > NEWS) | ((before != level.tokens) & ~np.isnan(says))
        news &= np.fmax(says, shorter) > LEAST
        part = level.keys[news], level.tokens[news], says[news]
        entries.add(*part)
        _update(tokens, shares, part, places, length - 1)
    return entries


def _judged(entries: _Entries, asked: Places) -> Judged:
    tokens, shares = entries.of(asked)
    right, sure = tokens == asked.next, shares >= 0.5
    return Judged(len(right), float(right.mean()), float(sure.mean()), float(right[sure].mean()) if sure.any() else 0.0)
