"""Several drafters in order: each round the one drafts that promises most tokens for its time.

A drafter shows its first token, and with it how sure it is. A later one is asked where the earlier ones promise less than
it gives on average. What a first token of such a confidence came to, tokens and time, is learnt from finished rounds. The
choice depends on what is known before the round alone, so the output keeps the target's law.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from collections.abc import Sequence as Series
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.values import Context, Round, Step, UnusedWork
from ..errors import UnsupportedOption
from .base import DRAFTERS, DrafterFactory, Parts
from .promises import Promises

RETRY = 32  # rounds after which a drafter that seems worse drafts again
FIRST_TOKENS, FIRST_LENGTH, FIRST_TIME = 1.5, 3, 1.25  # what is expected of a draft before any was seen
GENERAL = -1  # in a kind's place of the confidence: whatever it is
BUCKETS = 5  # of confidences; one more is for those that have none


@dataclass(frozen=True, slots=True)
class Beginning:
    """A drafter's first step of a round, and the rest of its draft."""

    drafter: int
    kind: tuple[int, int]
    first: Step
    rest: AsyncGenerator[Step]


@final
class Cascade(Drafter):
    """promises are shared by the requests of an engine."""

    def __init__(self, drafters: Series[Drafter], promises: Promises) -> None:
        self.taps = frozenset().union(*(drafter.taps for drafter in drafters))
        self.identity = next((drafter.identity for drafter in drafters if drafter.identity), "")
        self.rule = next((drafter.rule for drafter in drafters if drafter.rule is not None), None)
        self._drafters = tuple(drafters)
        self._promises = promises
        self._idle = [0] * len(drafters)  # rounds since each one drafted
        self._kind: tuple[int, int] | None = None

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self.unused, self._kind = UnusedWork(), None
        self._idle = [rounds + 1 for rounds in self._idle]
        asked: list[Drafter] = []
        try:
            async with AsyncExitStack() as drafts:
                best = await self._best(context, drafts, asked)
                if best is None:
                    return
                self._kind = best.kind
                self._idle[best.drafter] = 0
                yield best.first
                async for step in best.rest:
                    yield step
        finally:
            # what they computed ahead is known once their drafts are closed
            self.unused = sum((drafter.unused for drafter in asked), UnusedWork())

    async def _best(self, context: Context, drafts: AsyncExitStack, asked: list[Drafter]) -> Beginning | None:
        best: Beginning | None = None
        for number, drafter in enumerate(self._drafters):
            due = self._idle[number] > RETRY
            if best is not None and not due and self._promised((number, GENERAL)) <= self._promised(best.kind):
                continue
            rest = await drafts.enter_async_context(aclosing(drafter.draft(context)))
            asked.append(drafter)
            first = await anext(rest, None)
            if first is None:
                continue
            found = Beginning(number, (number, _bucket(first)), first, rest)
            if due:
                return found
            if best is None or self._promised(found.kind) > self._promised(best.kind):
                best = found
        return best

    def _promised(self, kind: tuple[int, int]) -> float:
        return self._promises.of(kind, _guess(kind[1]))

    def unread(self, ids: Series[int]) -> int:
        return max(drafter.unread(ids) for drafter in self._drafters)

    async def read(self, ids: Series[int], given: int) -> Rows:
        """The rows of the last drafter, which is the one that has some."""
        return await self._drafters[-1].read(ids, given)

    def learn(self, round: Round, rows: Tensor) -> None:
        kind, self._kind = self._kind, None
        seconds = round.timing.draft + round.timing.verify
        if kind is not None and len(round.draft):
            for one in (kind, (kind[0], GENERAL)):
                self._promises.learn(one, len(round.tokens), seconds)
        elif not round.prefill and not len(round.draft):
            self._promises.learn_plain(seconds)
        for drafter in self._drafters:
            drafter.learn(round, rows)

    def close(self) -> None:
        for drafter in self._drafters:
            drafter.close()


@DRAFTERS("cascade", source="forerun; lookup first, then a model: Saxena, prompt lookup decoding, 2023")
def build(parts: Parts, *, of: str, **options: Any) -> DrafterFactory:
    """Several drafters, of which each round the one drafts that promises most tokens for its time.

    of: their names in order, as in suffix,draft_model; those that cost no forward come first. Each has its own options;
    where two have one of the same name, NAME_OPTION says whose.
    """
    names = [name.strip() for name in of.split(",")]
    if len(names) < 2 or len({*names}) < len(names) or "cascade" in names:
        raise UnsupportedOption(f"of must name two or more different drafters other than 'cascade', got {of!r}")
    shared = _shared_out(names, options)
    makers = [DRAFTERS.check(name, shared[name]).build(parts, **shared[name]) for name in names]
    promises = Promises()
    return lambda target: Cascade([make(target) for make in makers], promises)


def _shared_out(names: Series[str], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each drafter's options."""
    entries = {name: DRAFTERS.entry(name) for name in names}
    shared: dict[str, dict[str, Any]] = {name: {} for name in names}
    for option, value in options.items():
        named = {f"{name}_{own}": (name, own) for name, entry in entries.items() for own in entry.options}
        owners = [name for name, entry in entries.items() if option in entry.options]
        if option in named:
            name, own = named[option]
            shared[name][own] = value
        elif len(owners) == 1:
            shared[owners[0]][option] = value
        elif owners:
            raise UnsupportedOption(
                f"both {' and '.join(owners)} have an option {option!r}; write {owners[0]}_{option} or {owners[1]}_{option}"
            )
        elif passing := [name for name, entry in entries.items() if entry.passes_options_on]:
            shared[passing[0]][option] = value
        else:
            known = ", ".join(own for entry in entries.values() for own in entry.options)
            raise UnsupportedOption(
                f"drafter 'cascade' of {', '.join(names)} has no option {option!r}; its options: of, {known}"
            )
    return shared


def _bucket(step: Step) -> int:
    """Of what is known of the first token: a counted confidence, or none."""
    if step.confidence is None:
        return BUCKETS
    return min(int(step.confidence * BUCKETS), BUCKETS - 1)


def _guess(bucket: int) -> float:
    """Tokens for the time of a plain round, before any such draft was seen."""
    if not 0 <= bucket < BUCKETS:
        return FIRST_TOKENS
    likely = (bucket + 0.5) / BUCKETS
    return sum(likely**count for count in range(FIRST_LENGTH + 1)) / FIRST_TIME
