"""What one forward says of guesses: the chain of best tokens goes through the right ones and ends at the first wrong one."""

from __future__ import annotations

from collections.abc import Sequence as Series
from dataclasses import replace

from ...core.forward import Rows
from ...core.sampling import greedy_tokens
from ...errors import InvalidLogits


def through_guesses(rows: Rows, guesses: Series[int], among: int) -> Rows:
    """The row before the guesses, and those after each right one, with the best tokens of these rows.

    rows: one before the guesses and one after each of them; its taps are of these and of rows before them. among: of how
    many tokens, from 0 on, a token is the best. Where a row is no law, the first one alone, whose token isn't known then.
    """
    try:
        best = greedy_tokens(rows.logits[:, :among], rows.chooser)
    except InvalidLogits:
        best = []
    right = 0
    while right < len(guesses) and right < len(best) and best[right] == guesses[right]:
        right += 1
    wrong = len(guesses) - right
    return replace(
        rows,
        given_logits=rows.logits[: right + 1],
        given_hidden=rows.hidden[: right + 1],
        taps={layer: states[: len(states) - wrong] for layer, states in rows.taps.items()},
        tokens=best[: right + 1],
        checked=True,
        best=(),
    )
