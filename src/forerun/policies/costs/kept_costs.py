"""Costs that an earlier start of forerun measured, in verifications of one row: the machine may be faster or slower now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

from ...core.learned import numbers
from .cost_line import Line, line_through

MOST_ROWS = 256
Drafting = tuple[str, bool]  # which of several drafters, "" of one alone, and whether its step has a row


@final
@dataclass(frozen=True)
class KeptCosts:
    """verify: by rows. step: of a draft step. read: of a token that a drafter reads first."""

    verify: Mapping[int, float] = field(default_factory=dict)
    step: Mapping[Drafting, float] = field(default_factory=dict)
    read: float | None = None

    def at(self, rows: int) -> float:
        """Of a verification of so many rows; of one where none was kept."""
        if not self.verify:
            return 1.0
        return self.verify[rows] if rows in self.verify else self._line.at(rows)

    @cached_property
    def _line(self) -> Line:
        return line_through({float(rows): (cost, 1.0) for rows, cost in self.verify.items()})

    def as_data(self) -> dict[str, Any]:
        return {
            "verify": [[rows, cost] for rows, cost in sorted(self.verify.items())[:MOST_ROWS]],
            "step": [
                [drafter, int(has_row), cost] for (drafter, has_row), cost in sorted(self.step.items())[:MOST_ROWS]
            ],
            "read": self.read,
        }

    @classmethod
    def from_data(cls, data: Any) -> KeptCosts:
        """Raises ValueError where data is not what as_data gives."""
        parts = [data.get(part) for part in ("verify", "step", "read")] if isinstance(data, dict) else [None] * 3
        rows, steps, read = parts
        if not isinstance(rows, list) or not isinstance(steps, list):
            raise ValueError(f"no costs were kept in {str(data)[:40]}")
        verify = [numbers(pair, 2) for pair in rows[:MOST_ROWS]]
        step = dict(map(_kept_step, steps[:MOST_ROWS]))
        if any(count < 1 or cost <= 0 for count, cost in verify):
            raise ValueError(f"a kept cost needs rows >= 1 and must be above 0, got {verify}")
        if read is not None:
            (read,) = numbers([read], 1)
        return cls({int(rows): cost for rows, cost in verify}, step, read)


def _kept_step(data: Any) -> tuple[Drafting, float]:
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise ValueError(f"no cost of a drafter's step was kept in {str(data)[:40]}")
    has_row, cost = numbers(data[1:], 2)
    return (data[0], bool(has_row)), cost


NOTHING = KeptCosts()
