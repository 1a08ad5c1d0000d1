"""Several drafters in order: each round the one drafts that promises most for its time.

A drafter shows its first token, and with it how sure it is. A later one is asked where it promises more than those before it
do, and than a round without a draft. What drafts came to, tokens and time, is learnt from finished rounds: of a drafter, by
how its last draft ended and by its first token's confidence. The choice depends on what is known before the round, and on
tokens that were chosen and not drawn, so the output keeps the target's law.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from dataclasses import dataclass, replace
from typing import Any, final

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.learned import Learning, joined
from ..core.values import Context, Round, Step, UnusedWork
from ..errors import UnsupportedOption
from .base import DRAFTERS, DrafterFactory, Parts
from .cascading.options import shared_out
from .cascading.promises import Promises

PAUSE = 8  # rounds after which a drafter has much to read that it missed
USUAL = 64  # tokens of an answer over which the reading of a text must pay
RETRY = 32  # rounds after which a drafter that seems worse may draft again
SHARE, MOST_SPARE = 0.004, 2.0  # tokens that this may cost: of each emitted one, and at once
FIRST_TOKENS, FIRST_LENGTH, FIRST_TIME = 1.9, 3, 1.25  # what is expected of a draft before any was seen
BUCKETS = 5  # of confidences
UNSURE = "?"  # in place of a bucket: a token with no confidence, or drawn
FRESH, REFUSED, FOLLOWED = "fresh", "refused", "followed"  # how a drafter's last draft ended in this text
CHOOSERS = ("auto", "cascade", "hybrid")


@dataclass(frozen=True, slots=True)
class Beginning:
    """A drafter's first step of a round, and the rest of its draft."""

    number: int
    bucket: str
    first: Step
    rest: AsyncGenerator[Step]


@final
class Cascade(Drafter):
    """promises are shared by the requests of an engine; without any, the first drafter that finds something drafts."""

    def __init__(self, drafters: Series[Drafter], names: Series[str], promises: Promises | None) -> None:
        self.taps = frozenset().union(*(drafter.taps for drafter in drafters))
        self.identity = next((drafter.identity for drafter in drafters if drafter.identity), "")
        self.rule = next((drafter.rule for drafter in drafters if drafter.rule is not None), None)
        self.copies = any(drafter.copies for drafter in drafters)
        self._drafters = tuple(drafters)
        self._names = tuple(names)
        self._promises = promises
        self._spare = 0.0
        self._idle = [0] * len(drafters)  # rounds since each one drafted
        self._ended = [FRESH] * len(drafters)
        self._computes = [drafter.branches or drafter.inner is not None for drafter in drafters]
        self._unread: list[int | None] = [None if computes else 0 for computes in self._computes]
        self._chosen: Beginning | None = None

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self.unused, self._chosen, self.drafted_by = UnusedWork(), None, ""
        self._idle = [rounds + 1 for rounds in self._idle]
        asked: dict[int, AsyncGenerator[Step]] = {}
        try:
            best = await self._best(context, asked)
            if best is None:
                return
            self._chosen = best
            self.drafted_by = self._drafters[best.number].drafted_by or self._names[best.number]
            yield replace(best.first, drafted_by=self.drafted_by)
            async for step in best.rest:
                yield replace(step, drafted_by=self.drafted_by)
        finally:
            for number, source in asked.items():
                await source.aclose()
                self.unused += self._drafters[number].unused

    async def _best(self, context: Context, asked: dict[int, AsyncGenerator[Step]]) -> Beginning | None:
        best: Beginning | None = None
        gain = self._least
        for number, drafter in enumerate(self._drafters):
            due = self._due(number, gain)
            wanted = due or not self._computes[number] or self._gain(number) - self._reading(number, context) > gain
            if not wanted or (best is not None and self._promises is None):
                continue
            rest = asked[number] = drafter.draft(context)
            first = await anext(rest, None)
            if first is None:
                continue
            bucket = _bucket(first)
            found: Beginning | None = Beginning(number, bucket, first, rest)
            promised = self._gain(number, bucket)
            if due or best is None or promised > gain:
                found, best, gain = best, found, promised
            if found is not None:
                self.unused += UnusedWork(found.first.counts, found.first.forward_seconds)
            if due:
                break
        return best

    @property
    def _least(self) -> float:
        return float("-inf") if self._promises is None else self._promises.of_plain

    def _gain(self, number: int, bucket: str = "") -> float:
        return 0.0 if self._promises is None else self._promises.of(self._kinds(number, bucket), _guess(bucket))

    def _kinds(self, number: int, bucket: str = "") -> tuple[str, str]:
        """Of a drafter's draft, by its first token's bucket where that is known."""
        general = f"{self._names[number]} {bucket}" if bucket else self._names[number]
        return general, f"{general} {self._ended[number]}"

    def _due(self, number: int, gain: float) -> bool:
        """Whether a drafter that seems worse is tried again: what that is expected to cost is then spent."""
        if self._promises is None or self._idle[number] <= RETRY:
            return False
        loss = gain - self._gain(number)
        if loss > self._spare:
            return False
        self._spare -= max(loss, 0.0)
        return True

    def _reading(self, number: int, context: Context) -> float:
        """What it costs a draft that its drafter has this text to read first."""
        unread = self._unread[number]
        if unread is None:
            unread = self._unread[number] = self._drafters[number].unread(context.ids)
        if not unread or self._promises is None:
            return 0.0
        return self._promises.of_reading(self._names[number], unread) / min(context.room, USUAL)

    def unread(self, ids: Series[int]) -> int:
        """What it can't do without reading: a drafter that has to read is asked where this pays."""
        return min(drafter.unread(ids) for drafter in self._drafters)

    async def read(self, ids: Series[int], given: int) -> Rows:
        """The rows of the last drafter, which is the one that has some."""
        return await self._drafters[-1].read(ids, given)

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        chosen, self._chosen = self._chosen, None
        self._spare = min(self._spare + SHARE * len(round.tokens), MOST_SPARE)
        if chosen is not None:
            self._learn(chosen, round)
        elif self._promises is not None and not round.prefill:
            self._promises.learn_plain(round.timing.verify)
        for drafter in self._drafters:
            drafter.learn(context, round, rows)

    def _learn(self, chosen: Beginning, round: Round) -> None:
        """Of a draft, also of one whose first step was left out: what it promises is then little."""
        number, pause = chosen.number, self._idle[chosen.number] > PAUSE
        self._idle[number] = 0
        if self._promises is not None:
            if not len(round.draft):
                self._promises.time_plain(round.timing.verify)
            kinds = (*self._kinds(number), *self._kinds(number, chosen.bucket))
            seconds, guess = round.timing.draft + round.timing.verify, _guess(chosen.bucket)
            if unread := self._unread[number]:
                self._promises.learn_reading(self._names[number], unread, kinds, guess, seconds)
            # at first and after a pause it reads, which is not what a draft costs
            reads = unread or (pause and self._computes[number])
            self._promises.learn(kinds, len(round.tokens), seconds, guess if reads else None)
        self._unread[number] = 0
        followed = bool(round.verdict.path) or round.tokens[0] in chosen.first.tokens
        self._ended[number] = FOLLOWED if followed else REFUSED

    def close(self) -> None:
        for drafter in self._drafters:
            drafter.close()


def cascade_of(makers: Series[DrafterFactory], names: Series[str]) -> Learning[Any, Drafter]:
    """A factory of cascades of the drafters that these make."""
    promises = Promises()
    learned = {"promises": promises, **joined(**dict(zip(names, makers, strict=True)))}
    return Learning(lambda target: Cascade([make(target) for make in makers], names, promises), learned)


@DRAFTERS("cascade", source="forerun; lookup first, then a model: Saxena, prompt lookup decoding, 2023")
def build(parts: Parts, *, of: str, **options: Any) -> DrafterFactory:
    """Several drafters, of which each round the one drafts that promises most tokens for its time.

    of: their names in order, as in suffix,draft_model; those that cost no forward come first. Each has its own options;
    where two have one of the same name, NAME_OPTION says whose.
    """
    names = [name.strip() for name in of.split(",")]
    if len(names) < 2 or len({*names}) < len(names) or {*names} & {*CHOOSERS}:
        raise UnsupportedOption(
            f"of must name two or more different drafters other than {', '.join(CHOOSERS)}, got {of!r}"
        )
    shared = shared_out(names, options)
    return cascade_of([DRAFTERS.check(name, shared[name]).build(parts, **shared[name]) for name in names], names)


@DRAFTERS("hybrid", source="forerun; its first part: Saxena, prompt lookup decoding, 2023")
def build_hybrid(parts: Parts, *, then: str, **options: Any) -> DrafterFactory:
    """Another name for cascade: lookup, then another drafter (then), each with its own options."""
    if then in (*CHOOSERS, "lookup"):
        raise UnsupportedOption(f"then must be a drafter other than {', '.join(CHOOSERS)} and lookup, got {then!r}")
    # `of` is cascade's own, so an inner drafter's goes under its name
    own = {f"{then}_{name}" if name == "of" else name: value for name, value in options.items()}
    return build(parts, of=f"lookup,{then}", **own)


def _bucket(step: Step) -> str:
    """Of what is known of a first token that was chosen: its confidence, where the drafter tells one."""
    if step.confidence is None or any(law is not None for law in step.laws):
        return UNSURE
    return str(min(int(step.confidence * BUCKETS), BUCKETS - 1))


def _guess(bucket: str) -> tuple[float, float]:
    """Tokens and time, before any such draft was seen."""
    if bucket in ("", UNSURE):
        return FIRST_TOKENS, FIRST_TIME
    likely = (int(bucket) + 0.5) / BUCKETS
    return sum(likely**count for count in range(FIRST_LENGTH + 1)), FIRST_TIME
