"""Costs that an earlier start of forerun measured, in verifications of one row: the machine may be faster or slower now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

from ...core.learned import numbers
from .cost_line import Line, line_through

MOST_ROWS = 256


@final
@dataclass(frozen=True)
class KeptCosts:
    """verify: by rows. step: of a draft step, by whether it has a row. read: of a token that a drafter reads first."""

    verify: Mapping[int, float] = field(default_factory=dict)
    step: Mapping[bool, float] = field(default_factory=dict)
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
            "step": [[int(has_row), cost] for has_row, cost in self.step.items()],
            "read": self.read,
        }

    @classmethod
    def from_data(cls, data: Any) -> KeptCosts:
        """Raises ValueError where data is not what as_data gives."""
        parts = [data.get(part) for part in ("verify", "step", "read")] if isinstance(data, dict) else [None] * 3
        rows, steps, read = parts
        if not isinstance(rows, list) or not isinstance(steps, list):
            raise ValueError(f"no costs were kept in {str(data)[:40]}")
        verify, step = ([numbers(pair, 2) for pair in one[:MOST_ROWS]] for one in (rows, steps))
        if any(count < 1 or cost <= 0 for count, cost in verify):
            raise ValueError(f"a kept cost needs rows >= 1 and must be above 0, got {verify}")
        if read is not None:
            (read,) = numbers([read], 1)
        return cls({int(rows): cost for rows, cost in verify}, {bool(has_row): cost for has_row, cost in step}, read)


NOTHING = KeptCosts()
