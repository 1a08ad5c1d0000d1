"""Prompt lookup: drafts what followed the last few tokens earlier in prompt and output.

The longest n-gram first, then its most recent match. Every n-gram's latest end is indexed once, when its token arrives,
so a lookup costs the same for any length of text.

Source: Saxena, prompt lookup decoding, 2023; the same idea: Yang et al., LLMA, arXiv 2304.04487.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import final

from ..core.drafter import Drafter
from ..core.values import Context, Step
from .base import DRAFTERS, DrafterFactory, Parts


@final
class Lookup(Drafter):
    copies = True

    def __init__(self, max_ngram: int, min_ngram: int) -> None:
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._follower: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self._index(context.ids)
        position = self._find(context.ids)
        node = -1
        while position is not None and position < len(context.ids):
            yield Step((context.ids[position],), (node,), (None,))
            position, node = position + 1, node + 1

    def _index(self, ids: list[int]) -> None:
        """Note what follows each n-gram that ends before the last token."""
        for end in range(self._indexed, len(ids) - 1):
            for size in self._sizes:
                if size <= end + 1:
                    self._follower[tuple(ids[end + 1 - size : end + 1])] = end + 1
        self._indexed = max(self._indexed, len(ids) - 1)

    def _find(self, ids: list[int]) -> int | None:
        for size in self._sizes:
            if size <= len(ids) and (found := self._follower.get(tuple(ids[-size:]))) is not None:
                return found
        return None


@DRAFTERS("lookup", source="Saxena, prompt lookup decoding, 2023; Yang et al., arXiv 2304.04487")
def build(parts: Parts, *, max_ngram: int = 3, min_ngram: int = 1) -> DrafterFactory:
    """Copy what followed the same n-gram earlier in prompt and output; costs no forward."""
    if not 1 <= min_ngram <= max_ngram:
        raise ValueError(f"min_ngram must be in 1..max_ngram, got min_ngram {min_ngram} and max_ngram {max_ngram}")
    return lambda target: Lookup(max_ngram, min_ngram)
