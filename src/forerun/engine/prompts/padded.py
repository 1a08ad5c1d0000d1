"""The rows of a batch of token ids, apart from each other and without what fills them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import takewhile
from operator import eq
from typing import Any

from ...errors import UnsupportedOption
from ...models.loading.padding import Padding


def unmasked(ids: Sequence[int], mask: Sequence[Any], row: int) -> list[int]:
    """The ids whose mask is 1; they stand together. Raises ValueError on any other mask, UnsupportedOption on holes."""
    if len(mask) != len(ids):
        raise ValueError(f"the attention mask of row {row} has {len(mask)} places and its ids have {len(ids)}")
    for value in mask:
        if value not in (0, 1):
            raise ValueError(f"an attention mask holds 0 and 1, got {ascii(value)[:60]} in row {row}")
    kept = [place for place, value in enumerate(mask) if value]
    return _together(ids, kept, f"the attention mask of row {row} is")


def without_padding(rows: Sequence[Sequence[int]], padding: Padding) -> list[list[int]]:
    """The rows of a tensor that came without a mask, as transformers' generate reads them.

    Raises UnsupportedOption where an id may be padding or text.
    """
    pad = padding.certain
    kept = [[place for place, token in enumerate(row) if token != pad] for row in rows]
    short = [_together(row, kept[n], f"the pad token {pad} in row {n} is") for n, row in enumerate(rows)]
    refuse_possible(short, padding.possible)
    return short


def refuse_possible(rows: Sequence[Sequence[int]], ids: Iterable[int]) -> None:
    """Raise UnsupportedOption where rows look filled up with one of the ids, which may be text as well.

    One at the same end of every row is no filling: texts may all begin with the same token.
    """
    for token in ids:
        for end, ordered in (("begins", rows), ("ends", [row[::-1] for row in rows])):
            runs = [len(list(takewhile(partial(eq, token), row))) for row in ordered]
            if max(runs) > 1 or len(set(runs)) > 1:
                raise UnsupportedOption(
                    f"row {runs.index(max(runs))} of the batch {end} with token {token}, which may be padding or text; pass "
                    'the mask with the ids: {"input_ids": ids, "attention_mask": mask}'
                )


def _together(ids: Sequence[int], kept: Sequence[int], what: str) -> list[int]:
    if not kept:
        raise ValueError(f"{what} all padding; give at least one token")
    if len(kept) != kept[-1] - kept[0] + 1:
        raise UnsupportedOption(f"{what} padding inside the text; pad on the left or on the right")
    return list(ids[kept[0] : kept[-1] + 1])
