"""vLLM's table of draft lengths by batch size, from what was best at each measured number of requests."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt


def table_of(lengths: Mapping[int, int]) -> list[list[int]]:
    """Rows of first size, last size and length; between two measured sizes the border is their geometric mean.

    vLLM takes the last row's length for all larger batches.
    """
    sizes = sorted(lengths)
    rows: list[list[int]] = []
    begin = 1
    for size, larger in zip(sizes, [*sizes[1:], None], strict=True):
        end = max(size, isqrt(size * larger)) if larger is not None else size
        if rows and rows[-1][2] == lengths[size]:
            rows[-1][1] = end
        else:
            rows.append([begin, end, lengths[size]])
        begin = end + 1
    return rows
