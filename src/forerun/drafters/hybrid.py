"""Lookup where it finds a match, else another drafter.

Lookup costs no forward, so it comes first. In a round without a match the other drafter drafts, after it has synced to the
text. The choice depends on the text so far alone, so the output keeps the target's law.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from collections.abc import Sequence as Series
from contextlib import aclosing
from typing import Any, final

from torch import Tensor

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.registry import Entry
from ..core.values import Context, Round, Step, UnusedWork
from ..errors import UnsupportedOption
from .base import DRAFTERS, DrafterFactory, Parts

FIRST = "lookup"


@final
class Hybrid(Drafter):
    def __init__(self, first: Drafter, then: Drafter) -> None:
        self.taps = first.taps | then.taps
        self.identity = then.identity
        self.rule = then.rule
        self._drafters = first, then

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self.unused = UnusedWork()
        for drafter in self._drafters:
            found = False
            try:
                async with aclosing(drafter.draft(context)) as steps:
                    async for step in steps:
                        found = True
                        yield step
            finally:
                self.unused = drafter.unused  # lookup, which comes first, has none
            if found:
                return

    def unread(self, ids: Series[int]) -> int:
        return self._drafters[1].unread(ids)

    async def read(self, ids: Series[int], given: int) -> Rows:
        """The other drafter's rows; lookup has none."""
        return await self._drafters[1].read(ids, given)

    def learn(self, round: Round, rows: Tensor) -> None:
        for drafter in self._drafters:
            drafter.learn(round, rows)

    def close(self) -> None:
        for drafter in self._drafters:
            drafter.close()


@DRAFTERS("hybrid", source="forerun; its first part: Saxena, prompt lookup decoding, 2023")
def build(parts: Parts, *, then: str, **options: Any) -> DrafterFactory:
    """Lookup where it finds a match, else another drafter (then), each with its own options."""
    if then in ("hybrid", FIRST):
        raise UnsupportedOption(f"then must be a drafter other than 'hybrid' and {FIRST!r}, got {then!r}")
    lookup, other = DRAFTERS.entry(FIRST), DRAFTERS.entry(then)
    of_lookup, of_other = _shared_out(options, lookup, other)
    make_lookup = DRAFTERS.check(FIRST, of_lookup).build(parts, **of_lookup)
    make_other = DRAFTERS.check(then, of_other).build(parts, **of_other)
    return lambda target: Hybrid(make_lookup(target), make_other(target))


def _shared_out(
    options: Mapping[str, Any], lookup: Entry[Any], other: Entry[Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Lookup's options and the other drafter's."""
    of_lookup: dict[str, Any] = {}
    of_other: dict[str, Any] = {}
    for name, value in options.items():
        if name in lookup.options and name in other.options:
            raise UnsupportedOption(
                f"drafter 'hybrid' can't assign the option {name!r}: both {lookup.name!r} and {other.name!r} have one"
            )
        if name in lookup.options:
            of_lookup[name] = value
        elif name in other.options or other.passes_options_on:
            of_other[name] = value
        else:
            known = ", ".join((*lookup.options, *other.options))
            raise UnsupportedOption(
                f"drafter 'hybrid' of {lookup.name!r} and {other.name!r} has no option {name!r}; its options: then, {known}"
            )
    return of_lookup, of_other
