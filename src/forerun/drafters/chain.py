"""A chain: each row of logits gives the next token, chosen at temperature 0, else drawn from the row's law."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.law import PointMass
from ..core.sampling import law
from ..core.values import Context, DraftCounts, Step, UnusedWork
from ..errors import InvalidLogits


async def chained(drafter: Drafter, context: Context) -> AsyncGenerator[Step]:
    """Draft a token at a time with a drafter that branches, up to the end of its context."""
    drafter.unused = UnusedWork()
    drafted: list[int] = []
    rows = await drafter.begin(context)
    while rows is not None:
        try:
            step = next_step(rows, context, drafted)
        except InvalidLogits:
            drafter.unused = UnusedWork(DraftCounts(1, invalid=1), rows.seconds)
            return
        yield step
        drafted.append(step.tokens[0])
        rows = await drafter.extend(drafted[-1:], [len(drafted) - 2])


def next_step(rows: Rows, context: Context, drafted: Sequence[int]) -> Step:
    """The chain's next node after the tokens drafted so far in this round; rows: the single row that it follows."""
    prefix = [*context.ids, *drafted] if context.sampling.uses_history else ()
    allowed = context.allowed(tuple(drafted))
    own = law(rows.logits[-1], context.sampling, prefix, context.prompt_length, rows.chooser, allowed)
    start = len(context.ids)
    token = context.chance.propose(own, start + len(drafted), start)
    drawn_from = None if isinstance(own, PointMass) else own
    return Step(
        (token,), (len(drafted) - 1,), (drawn_from,), rows.logits, rows.hidden, rows.seconds, counts=DraftCounts(1)
    )
