"""The loop: prompt ids -> prefill -> (draft -> verify -> keep -> yield) until done. Every method uses this loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import perf_counter
from typing import final

from torch import Tensor

from .drafter import Drafter
from .forward import Rows, Target
from .law import Law, PointMass
from .permitted import PermittedSteps
from .policy import LengthPolicy
from .sampling import greedy_tokens, law, masked
from .values import ROOT, Context, Draft, Pack, Round, Step, Timing, UnusedWork, Verdict
from .verify import RowLaw, Rule, verify

MOST_FAILED = 4  # NaN in the keys of a draft model stays there


async def decode(
    target: Target, drafter: Drafter, policy: LengthPolicy, context: Context, forced: bool = True
) -> AsyncGenerator[Round]:
    """Yield rounds until the context is finished. The first round is the prefill, with an empty draft.

    Unless the drafter is lossy, every token follows the target's law (verify.py), whatever drafter and policy do. forced:
    where the context's constraint forces tokens, those are the draft, and neither policy nor drafter is asked.
    """
    if context.room <= 0:
        return
    clock = _Clock()
    rows = await target.sync(context.ids, drafter.taps)
    clock.lap("forward")
    prefill = _finish(Draft(), _decide(Draft(), rows, context, clock), rows.logits, context, clock)
    drafter.learn(context, prefill, rows)
    yield prefill
    failed = 0  # consecutive drafts that are empty because the drafter's row was no law, without a processor's doing
    policy.begin(drafter.unread(context.ids), context.room, drafter.copies)
    try:
        while context.finish_reason is None:
            clock = _Clock()
            given = _forced(context) if forced else None
            held_back = given is None and policy.should_stop([])
            if given is not None:
                steps, unused = [given], UnusedWork()
            elif held_back or failed >= MOST_FAILED:
                steps, unused = [], UnusedWork()
            else:
                steps, unused = await collect(drafter, policy, context)
            failed = 0 if steps else failed + (unused.counts.invalid > 0 and not _masks_rows(context))
            draft = Draft.of(steps, unused.counts)
            clock.lap("draft")
            clock.add("draft_forward", sum(step.forward_seconds for step in steps) + unused.seconds)
            rows = await target.complete(
                [context.ids[-1], *draft.tokens], [ROOT, *(parent + 1 for parent in draft.parents)], drafter.taps
            )
            clock.lap("forward")
            clock.pack = rows.pack
            verdict = _decide(draft, rows, context, clock, drafter.rule if given is None else None)
            target.keep([0, *(node + 1 for node in verdict.path)])
            clock.lap("keep")
            round = _finish(draft, verdict, rows.logits, context, clock, held_back, given is not None)
            drafter.learn(context, round, rows)
            if given is None:
                policy.observe(steps, round)
            yield round
    finally:
        policy.end()


def _forced(context: Context) -> Step | None:
    """The tokens that must follow, as a chain."""
    tokens = () if context.constraint is None else context.constraint.forced(context.room - 1)
    return Step(tokens, tuple(range(ROOT, len(tokens) - 1)), (None,) * len(tokens)) if tokens else None


def _masks_rows(context: Context) -> bool:
    """Whether a row may be no law although it is sound: all that it knows is forbidden."""
    return context.sampling.calls_processors or context.constraint is not None


async def collect(drafter: Drafter, policy: LengthPolicy, context: Context) -> tuple[list[Step], UnusedWork]:
    """Collect steps while there is room for them and the target's own token; the end of the text ends a chain.

    A step that the policy leaves out is work that led to none. A drawn token is never left out for what it is.
    """
    steps: list[Step] = []
    left: Step | None = None
    if context.room <= 1:
        return steps, UnusedWork()
    context.ahead = lambda: max(min(policy.ahead(steps), context.room - 1 - len(steps)), 1)
    permitted = None if context.constraint is None else PermittedSteps(context.constraint)
    async with aclosing(drafter.draft(context)) as source:
        while len(steps) < context.room - 1 and not (steps and policy.should_stop(steps)):
            step = await anext(source, None)
            if step is not None and permitted is not None:
                step = permitted.of(step)
            if step is None:
                break
            steps.append(step)
            if all(law is None for law in step.laws) and policy.leaves_out(steps):
                left = steps.pop()
                break
            if all(token in context.eos for token in step.tokens) or (permitted is not None and permitted.ended):
                break
    unused = drafter.unused
    return steps, unused if left is None else unused + UnusedWork(left.counts, left.forward_seconds)


def _decide(draft: Draft, rows: Rows, context: Context, clock: _Clock, rule: Rule | None = None) -> Verdict:
    verdict = (rule or verify)(draft, _row_laws(rows, context, clock), context.chance, len(context.ids))
    clock.lap("decide")
    return verdict


def _finish(
    draft: Draft,
    verdict: Verdict,
    logits: Tensor,
    context: Context,
    clock: _Clock,
    held_back: bool = False,
    forced: bool = False,
) -> Round:
    start = len(context.ids)
    kept = _rows_of(verdict, logits, context) if context.keep_logits else None
    tokens = context.extend(verdict.tokens)
    return Round(
        tokens=tokens,
        draft=draft,
        verdict=verdict,
        start=start,
        prefill=start == context.prompt_length,
        timing=Timing(**clock.seconds, pack=clock.pack),
        logits=None if kept is None else kept[: len(tokens)],
        held_back=held_back,
        forced=forced,
    )


def _rows_of(verdict: Verdict, logits: Tensor, context: Context) -> Tensor:
    """The rows that the verdict's tokens come from, without what the constraint forbids."""
    rows = logits[[0, *(node + 1 for node in verdict.path)]]
    for place in range(len(rows)):
        if (allowed := context.allowed(verdict.tokens[:place])) is not None:
            rows[place] = masked(rows[place], allowed)
    return rows


@final
class _Clock:
    """A stopwatch with named laps. pack: the forward that the round shared."""

    pack: Pack | None = None

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.add(name, now - self._last)
        self._last = now

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def _row_laws(rows: Rows, context: Context, clock: _Clock) -> RowLaw:
    """The target's law by row. Greedy rows without history are read in one transfer."""
    sampling, logits, chooser, constraint = context.sampling, rows.logits, rows.chooser, context.constraint
    begun = perf_counter()
    best: list[int] | None = None
    if sampling.temperature == 0 and not sampling.uses_history:
        best = greedy_tokens(logits, chooser)
        clock.add("law", perf_counter() - begun)

    def row_law(row: int, drafted: tuple[int, ...]) -> Law:
        # the best of all tokens, if allowed, is the best of those allowed
        if best is not None and (constraint is None or constraint.permits(drafted, best[row])):
            return PointMass(best[row])
        begun = perf_counter()
        prefix = [*context.ids, *drafted] if sampling.uses_history else ()
        own = law(logits[row], sampling, prefix, context.prompt_length, chooser, context.allowed(drafted))
        clock.add("law", perf_counter() - begun)
        return own

    return row_law
