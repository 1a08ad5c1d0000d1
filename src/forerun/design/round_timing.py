"""Times the forwards of rounds in the order of decoding: a draft's first one, its further ones, the target's.

A draft's time is that of its steps: a forward, and the choice of a token from the row that it gives.

Isolated forwards find other data in the processor's caches: in a round, a draft's second forward reads weights that its
first one has just read, and its first comes after the target's. So a draft and the target are timed in bursts. The bursts of
all drafts, and plain steps, run repeatedly in shuffled order, so that noise affects all alike.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count, cycle
from statistics import median
from time import perf_counter
from typing import final

from ..bench.comparison import spread
from ..core.chance import Seeded
from ..core.cost import Cost, Point
from ..core.drafter import Drafter
from ..core.drive import drive
from ..core.values import ROOT, Context
from ..errors import UnsupportedOption
from ..models.packed.runner import Runner
from ..models.packed.sequence import Sequence as Target
from .throughput import LENGTHS, DraftTimes

READ = (1, 4)
LATER = 3
VERIFIED = tuple(k + 1 for k in LENGTHS)
REPEATS = 5
READINGS = 3
ROOM = max(*READ, LATER + 1, *VERIFIED) + LATER


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """verify: the target's forwards in rounds, by rows; plain: its one-row forward where nothing drafts; by name, drafts.

    reading: by name, milliseconds that a draft takes to read as many tokens as the prefix has.
    """

    verify: Cost
    plain: float
    drafts: dict[str, DraftTimes]
    reading: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Times:
    """Milliseconds, of one subject or of the target."""

    by_rows: dict[int, list[float]] = field(default_factory=dict)
    later: list[float] = field(default_factory=list)

    def add(self, rows: int, ms: float) -> None:
        self.by_rows.setdefault(rows, []).append(ms)

    def points(self, prefix: int) -> tuple[Point, ...]:
        found: list[Point] = []
        for rows, values in sorted(self.by_rows.items()):
            low, high = spread(values)
            found.append(Point(rows, prefix, median(values), high - low))
        return tuple(found)


def room_for(prefix: int, max_length: int | None) -> int:
    """The prefix, or as much of it as leaves room to measure. Raises ValueError where nothing does."""
    most = prefix if max_length is None else min(prefix, max_length - ROOM)
    if most < 1:
        raise ValueError(f"a context of {max_length} tokens is too short to measure rounds in; {ROOM + 1} are needed")
    return most


def measure(
    target: Runner,
    drafts: Sequence[tuple[str, Drafter]],
    about: tuple[str, str],
    prefix: int,
    tick: Callable[[], None] = lambda: None,
    repeats: int = REPEATS,
) -> Measured:
    """Time the target with every draft, after `prefix` tokens; about: the target's name and weights' format.

    tick is called once a repeat, repeats + 1 times. Raises UnsupportedOption where a draft's context is shorter.
    """
    bench = _RoundTimer(target, prefix)
    turns: list[tuple[tuple[str, Drafter] | None, int]]
    shuffle = random.Random(0).shuffle
    verified = cycle(VERIFIED)
    # even one draft meets every number of verified rows in a repeat; plain steps are the ones that all is compared with
    each = max(1, len(VERIFIED) // max(1, len(drafts) * len(READ)))
    turns = [(draft, rows) for draft in drafts for rows in READ] * each + [(None, 1)] * len(VERIFIED)
    for repeat in range(-1, repeats):
        shuffle(turns)
        for draft, rows in turns:
            list(drive(bench.burst(draft, rows, next(verified), keep=repeat >= 0)))
        tick()
    reading = {name: bench.reading(drafter) for name, drafter in drafts}
    name, weights = about
    model = type(target).__name__
    runner = {key: Cost(key, model, weights, "draft", times.points(prefix)) for key, times in bench.drafts.items()}
    return Measured(
        Cost(name, model, weights, "full", bench.target.points(prefix)),
        median(bench.plain),
        {key: DraftTimes(runner[key], median(times.later)) for key, times in bench.drafts.items()},
        reading,
    )


@final
class _RoundTimer:
    """The target after the prefix, and what was timed so far."""

    def __init__(self, target: Runner, prefix: int) -> None:
        self.target, self.drafts, self.plain = _Times(), dict[str, _Times](), list[float]()
        self._sequence = Target(target)
        self._vocabulary = target.vocab_size
        self._ids = [(7 * i + 3) % self._vocabulary for i in range(prefix)]
        # another text each time, so that a draft finds none of it computed
        self._fresh = count(1)

    async def burst(
        self, draft: tuple[str, Drafter] | None, read: int, verified: int, keep: bool
    ) -> AsyncGenerator[None]:
        """A round's forwards: a draft that begins with `read` rows, then the target; plain steps without a draft."""
        if self._sequence.ids != self._ids:
            await self._sequence.sync(self._ids)
        seed = next(self._fresh)
        tokens = [(13 * i + 5 * seed) % self._vocabulary for i in range(max(read, verified))]
        if draft is None:
            for _ in range(2):
                spent = await self._timed_target(tokens[:1])
            if keep:
                self.plain.append(spent)
        else:
            name, drafter = draft
            spent_steps = await _timed_steps(name, drafter, Context([*self._ids, *tokens[:read]], Seeded(0)))
            spent = await self._timed_target(tokens[:verified])
            if keep:
                times = self.drafts.setdefault(name, _Times())
                times.add(read, spent_steps[0])
                times.later += spent_steps[1:]
                self.target.add(verified, spent)
        yield

    def reading(self, drafter: Drafter) -> float:
        """The median time that a draft takes to read another text of the prefix's length."""
        return median(ms for _ in range(READINGS) for ms in drive(self._timed_reading(drafter)))

    async def _timed_reading(self, drafter: Drafter) -> AsyncGenerator[float]:
        ids = [(self._ids[0] + next(self._fresh)) % self._vocabulary, *self._ids[1:]]
        begun = perf_counter()
        rows = await drafter.read(ids, len(ids))
        float(rows.logits[-1, 0])
        yield 1000 * (perf_counter() - begun)

    async def _timed_target(self, tokens: Sequence[int]) -> float:
        begun = perf_counter()
        rows = await self._sequence.complete(tokens, range(ROOT, len(tokens) - 1))
        # reading a number waits until a GPU is done
        float(rows.logits[-1, 0])
        spent = 1000 * (perf_counter() - begun)
        self._sequence.drop()
        return spent


async def _timed_steps(name: str, drafter: Drafter, context: Context) -> list[float]:
    """Milliseconds of a draft's steps, each a forward and the choice of a token."""
    spent: list[float] = []
    async with aclosing(drafter.draft(context)) as steps:
        for _ in range(1 + LATER):
            begun = perf_counter()
            if await anext(steps, None) is None:
                raise UnsupportedOption(
                    f"{name} holds a shorter text than the one that is measured; take a smaller --prefix"
                )
            spent.append(1000 * (perf_counter() - begun))
    return spent
