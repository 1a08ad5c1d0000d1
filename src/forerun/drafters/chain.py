"""A chain: each row of logits gives the next token, chosen at temperature 0, else drawn from the row's law."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from copy import copy
from dataclasses import replace

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.law import PointMass
from ..core.sampling import law
from ..core.values import NO_COUNTS, Context, DraftCounts, Step, UnusedWork
from ..errors import InvalidLogits

FORWARD = DraftCounts(1)


async def chained(drafter: Drafter, context: Context) -> AsyncGenerator[Step]:
    """Draft a token at a time with a drafter that branches, up to the end of its context.

    Where tokens are the best ones of their rows, the drafter may compute as many at once as are likely to be taken, or check
    guesses of them in one forward.
    """
    drafter.unused = UnusedWork()
    drafted: list[int] = []
    greedy = context.sampling.temperature == 0 and not context.sampling.uses_history and context.constraint is None
    while True:
        ahead = context.ahead() if greedy else 0
        guesses: Sequence[int] = ()
        if ahead > 1 and context.guess is not None:
            guesses = context.guess(drafted, ahead - 1)
            ahead = 1 + len(guesses)
        rows = await drafter.go_on(context, drafted, ahead, guesses)
        if rows is None:
            return
        count = left = max(len(rows.tokens), 1)
        step: Step | None = None
        try:
            for place in range(count):
                step = known_step(rows, place, drafted) if rows.tokens else _next_step(rows, context, drafted)
                if step is None:
                    return
                left -= 1
                yield step
                drafted.append(step.tokens[0])
        finally:
            if left:
                forwards = int(left == count) if rows.checked else left
                counts = DraftCounts(forwards, invalid=int(step is None))
                drafter.unused = UnusedWork(counts, left * rows.seconds / count)


def choosing(context: Context) -> Context:
    """The same request, whose drafts are chosen and not drawn; it moves with the other one."""
    chosen = copy(context)
    chosen.sampling = replace(context.sampling, temperature=0.0)
    return chosen


def next_step(rows: Rows, context: Context, drafted: Sequence[int]) -> Step:
    """The chain's next node after the tokens drafted so far in this round; rows: the single row that it follows."""
    prefix = [*context.ids, *drafted] if context.sampling.uses_history else ()
    allowed = context.allowed(tuple(drafted))
    own = law(rows.logits[-1], context.sampling, prefix, context.prompt_length, rows.chooser, allowed)
    start = len(context.ids)
    token = context.chance.propose(own, start + len(drafted), start)
    drawn_from = None if isinstance(own, PointMass) else own
    return Step((token,), (len(drafted) - 1,), (drawn_from,), rows.logits, rows.hidden, rows.seconds, counts=FORWARD)


def known_step(rows: Rows, place: int, drafted: Sequence[int]) -> Step | None:
    """The same of one of several rows whose tokens are known; None after a row that is no law."""
    token = rows.tokens[place]
    if token < 0:
        return None
    own = slice(place, place + 1)
    return Step(
        *((token,), (len(drafted) - 1,), (None,)),
        *(rows.logits[own], rows.hidden[own], rows.seconds / len(rows.tokens)),
        counts=NO_COUNTS if rows.checked and place else FORWARD,
        share=rows.shares[place] if rows.shares else None,
    )


def _next_step(rows: Rows, context: Context, drafted: Sequence[int]) -> Step | None:
    try:
        return next_step(rows, context, drafted)
    except InvalidLogits:
        return None
