"""A draft of guesses: a drafter with forwards of its own checks in each of them what the text and a table say comes next.

A draft model, or small weights of the target, reads a token at a time, and each costs a forward. `suffix` says for nothing
what may follow, and is right about half the time; a forward that reads its guesses too, as rows that cost little, drafts
all of them that are right and one more. The draft has the tokens that it would have without guesses.

Source: Chen et al., Cascade Speculative Drafting, arXiv 2312.11462, which calls it a vertical cascade.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from copy import copy
from typing import Any, final

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.learned import Learning, joined
from ..core.values import Context, Round, Step, UnusedWork
from ..errors import UnsupportedOption
from .base import DRAFTERS, DrafterFactory, Parts
from .cascading.options import shared_out

GUESSING = "suffix"
CHECKING = "of must be draft_model or self"
LEAST = 0.25  # of suffix, unless it is told: a right guess saves a forward, and a row takes up to a quarter of one


@final
class Guessed(Drafter):
    """checking: drafts with forwards; guessing: says without one what may follow."""

    branches = True

    def __init__(self, checking: Drafter, guessing: Drafter) -> None:
        self.taps, self.identity = checking.taps, checking.identity
        self._checking, self._guessing = checking, guessing

    @property
    def unused(self) -> UnusedWork:  # type: ignore[override]
        return self._checking.unused

    def draft(self, context: Context) -> AsyncGenerator[Step]:
        own = copy(context)
        own.guess = lambda drafted, most: self._guessing.guess(context, drafted, most)
        return self._checking.draft(own)

    def unread(self, ids: Series[int]) -> int:
        return self._checking.unread(ids)

    async def begin(self, context: Context) -> Rows | None:
        return await self._checking.begin(context)

    async def extend(self, tokens: Series[int], parents: Series[int]) -> Rows | None:
        return await self._checking.extend(tokens, parents)

    async def go_on(self, context: Context, drafted: Series[int], ahead: int, guesses: Series[int] = ()) -> Rows | None:
        return await self._checking.go_on(context, drafted, ahead, guesses)

    async def read(self, ids: Series[int], given: int) -> Rows:
        return await self._checking.read(ids, given)

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        self._checking.learn(context, round, rows)
        self._guessing.learn(context, round, rows)

    def close(self) -> None:
        self._checking.close()
        self._guessing.close()


@DRAFTERS("guessed", source="Chen et al., Cascade Speculative Drafting, arXiv 2312.11462")
def build(parts: Parts, *, of: str, **options: Any) -> DrafterFactory:
    """Another drafter (of: draft_model or self), which checks what suffix guesses and needs fewer forwards so.

    Each has its own options; where both have one of the same name, NAME_OPTION says whose. Where drafts are drawn at a
    temperature, nothing is guessed.
    """
    shared = shared_out([of, GUESSING], options, "guessed")
    shared[GUESSING].setdefault("least", LEAST)
    checking = DRAFTERS.check(of, shared[of]).build(parts, **shared[of])
    probe = checking(parts.target.acquire())
    probe.close()
    if not probe.checks_guesses:
        raise UnsupportedOption(f"drafter {of!r} can't check guesses; {CHECKING}")
    guessing = DRAFTERS.entry(GUESSING).build(parts, **shared[GUESSING])
    return guessed_by(checking, guessing, of)


def guessed_by(checking: DrafterFactory, guessing: DrafterFactory, of: str) -> Learning[Any, Drafter]:
    """A factory of such drafts by the drafters that these make; of: the name of the one that checks."""
    learned = joined(**{of: checking, GUESSING: guessing})
    return Learning(lambda target: Guessed(checking(target), guessing(target)), learned)
