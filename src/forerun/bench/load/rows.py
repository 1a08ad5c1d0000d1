"""What several prompts at once came to: tokens a second in total, over plain decoding's, and how many texts are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ..backend import Backend, Batch
from ..intervals import number
from .measuring import REPEATS, Loads


def rows_of(loads: Loads, backends: Sequence[Backend]) -> list[dict[str, Any]]:
    """By size and backend. x plain compares the same repeat of the same size; a text's own is that of the smallest size."""
    known = {backend.name: backend for backend in backends}
    rows: list[dict[str, Any]] = []
    whole = {key: batches for key, batches in loads.batches.items() if len(batches) == REPEATS}
    for (name, size), batches in sorted(whole.items(), key=lambda one: one[0][1]):
        base = whole.get((known[name].baseline, size))
        least = min(other for owner, other in whole if owner == name)
        rates = [_rate(batch) for batch in batches]
        over = [a / _rate(b) for a, b in zip(rates, base or (), strict=False)]
        rows.append(
            {
                "name": name,
                "at_once": size,
                "format": known[name].about.get("format"),
                "tokens_per_second": round(median(rates), 1),
                "each": [round(rate, 1) for rate in rates],
                "over_plain": round(median(over), 3) if over else None,
                "tokens": batches[-1].tokens,
                "seconds": [round(batch.seconds, 3) for batch in batches],
                "equal_to_plain": None if base is None else _equal(batches[-1], base[-1]),
                "equal_to_alone": _equal(batches[-1], whole[name, least][-1]),
                "prompts": len(batches[-1].ids),
            }
        )
    return rows


def _rate(batch: Batch) -> float:
    return batch.tokens / batch.seconds


def _equal(one: Batch, other: Batch) -> int:
    return sum(a == b for a, b in zip(one.ids, other.ids, strict=True))


def load_table(report: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A line for each backend and size."""
    rows: list[tuple[str, ...]] = [
        (
            row["name"],
            row["format"] or report["weights"],
            str(row["at_once"]),
            f"{row['tokens_per_second']:.1f}",
            number(row["over_plain"], 2),
            "-" if row["equal_to_plain"] is None else f"{row['equal_to_plain']}/{row['prompts']}",
            f"{row['equal_to_alone']}/{row['prompts']}",
        )
        for row in report["loads"]
    ]
    return ("method", "format", "at once", "tokens/s", "x plain", "same", "same alone"), rows
