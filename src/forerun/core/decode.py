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
from .values import NO_WORK, NOTHING, ROOT, Context, Draft, Round, Step, Timing, UnusedWork, Verdict
from .verify import Rule, follow, verify

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
    greedy = context.sampling.temperature == 0 and not context.sampling.uses_history
    begun = perf_counter()
    rows = await target.sync(context.ids, drafter.taps)
    read = perf_counter()
    verdict, in_laws = _decide(NOTHING, rows, context, greedy)
    decided = perf_counter()
    timing = Timing(forward=read - begun, law=in_laws, decide=decided - read)
    prefill = _finish(NOTHING, verdict, rows, context, timing)
    drafter.learn(context, prefill, rows)
    yield prefill
    failed = 0  # consecutive drafts that are empty because the drafter's row was no law, without a processor's doing
    policy.begin(drafter.unread(context.ids), context.room, drafter.copies)
    try:
        while context.finish_reason is None:
            begun = perf_counter()
            given = _forced(context) if forced and context.constraint is not None else None
            held_back = given is None and policy.should_stop([])
            steps: list[Step] = []
            unused = NO_WORK
            if given is not None:
                steps = [given]
            elif not held_back and failed < MOST_FAILED and drafter.begins(context):
                steps, unused = await collect(drafter, policy, context)
            failed = 0 if steps else failed + (unused.counts.invalid > 0 and not _masks_rows(context))
            draft = Draft.of(steps, unused.counts) if steps or unused is not NO_WORK else NOTHING
            drafted = perf_counter()
            rows = await target.complete(
                [context.ids[-1], *draft.tokens], [ROOT, *[parent + 1 for parent in draft.parents]], drafter.taps
            )
            completed = perf_counter()
            verdict, in_laws = _decide(draft, rows, context, greedy, drafter.rule if given is None else None)
            decided = perf_counter()
            target.keep([0, *[node + 1 for node in verdict.path]])
            kept = perf_counter()
            drafting = sum([step.forward_seconds for step in steps]) + unused.seconds
            timing = Timing(
                *(drafted - begun, drafting, completed - drafted, in_laws, decided - completed, kept - decided),
                rows.pack,
            )
            round = _finish(draft, verdict, rows, context, timing, held_back, given is not None)
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
    most = context.room - 1  # one is the target's own
    if most <= 0:
        return steps, NO_WORK
    context.ahead = lambda: max(min(policy.ahead(steps), most - len(steps)), 1)
    permitted = None if context.constraint is None else PermittedSteps(context.constraint)
    async with aclosing(drafter.draft(context)) as source:
        while len(steps) < most and not (steps and policy.should_stop(steps)):
            step = await anext(source, None)
            if step is not None and permitted is not None:
                step = permitted.of(step)
            if step is None:
                break
            steps.append(step)
            if not any(step.laws) and policy.leaves_out(steps):
                left = steps.pop()
                break
            if context.eos.issuperset(step.tokens) or (permitted is not None and permitted.ended):
                break
    unused = drafter.unused
    return steps, unused if left is None else unused + UnusedWork(left.counts, left.forward_seconds)


def _decide(
    draft: Draft, rows: Rows, context: Context, greedy: bool, rule: Rule | None = None
) -> tuple[Verdict, float]:
    """The verdict, and the seconds that laws took. greedy: the law of a row is a point mass, by its logits alone."""
    if greedy and rows.best and rule is None and context.constraint is None and not any(draft.laws):
        return follow(draft, rows.best), 0.0
    laws = _RowLaws(rows, context, greedy)
    return (rule or verify)(draft, laws.of, context.chance, len(context.ids)), laws.seconds


def _finish(
    draft: Draft,
    verdict: Verdict,
    rows: Rows,
    context: Context,
    timing: Timing,
    held_back: bool = False,
    forced: bool = False,
) -> Round:
    start = len(context.ids)
    kept = _rows_of(verdict, rows.logits, context) if context.keep_logits else None
    tokens = context.extend(verdict.tokens)
    logits = None if kept is None else kept[: len(tokens)]
    return Round(tokens, draft, verdict, start, start == context.prompt_length, timing, logits, held_back, forced)


def _rows_of(verdict: Verdict, logits: Tensor, context: Context) -> Tensor:
    """The rows that the verdict's tokens come from, without what the constraint forbids."""
    rows = logits[[0, *(node + 1 for node in verdict.path)]]
    for place in range(len(rows)):
        if (allowed := context.allowed(verdict.tokens[:place])) is not None:
            rows[place] = masked(rows[place], allowed)
    return rows


@final
class _RowLaws:
    """The target's law by row. Greedy rows without history are read in one transfer. seconds: what they took."""

    def __init__(self, rows: Rows, context: Context, greedy: bool) -> None:
        begun = perf_counter()
        self._rows, self._context = rows, context
        self._best = greedy_tokens(rows.logits, rows.chooser) if greedy else None
        self.seconds = perf_counter() - begun

    def of(self, row: int, drafted: tuple[int, ...]) -> Law:
        context, best = self._context, self._best
        # the best of all tokens, if allowed, is the best of those allowed
        if best is not None and (context.constraint is None or context.constraint.permits(drafted, best[row])):
            return PointMass(best[row])
        begun = perf_counter()
        sampling, rows = context.sampling, self._rows
        prefix = [*context.ids, *drafted] if sampling.uses_history else ()
        allowed = context.allowed(drafted)
        own = law(rows.logits[row], sampling, prefix, context.prompt_length, rows.chooser, allowed)
        self.seconds += perf_counter() - begun
        return own
