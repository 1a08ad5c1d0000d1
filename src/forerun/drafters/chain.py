"""From one row of logits to the next token of a chain: chosen at temperature 0, else drawn from the row's law."""

from __future__ import annotations

from collections.abc import Sequence

from ..core import Context, Step
from ..law import PointMass
from ..models.request import Rows
from ..sampling import law


def next_step(rows: Rows, context: Context, drafted: Sequence[int]) -> Step:
    """The chain's next node behind the tokens drafted so far in this round; rows: the single row that it follows."""
    prefix = [*context.ids, *drafted] if context.sampling.uses_history else ()
    own = law(rows.logits[-1], context.sampling, prefix, context.prompt_length)
    start = len(context.ids)
    token = context.chance.propose(own, start + len(drafted), start)
    drawn_from = None if isinstance(own, PointMass) else own
    return Step((token,), (len(drafted) - 1,), (drawn_from,), rows.logits, rows.hidden, rows.seconds)
