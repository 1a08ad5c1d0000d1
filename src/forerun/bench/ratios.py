"""Tokens a second of forerun's methods over those of other engines, on the same prompts in the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .backend import Backend, Sample
from .intervals import Estimate, median_of, number, ratio_of_rates
from .methods import PLAIN
from .scores import totals
from .suite import Item


def ratios_of(
    samples: Mapping[str, Sequence[Sample]], backends: Sequence[Backend], items: Sequence[Item]
) -> list[dict[str, Any]]:
    """For each method and each mode of another engine: by totals and by the prompts' median, overall and by category."""
    taking_part = [backend for backend in backends if backend.name in samples]
    own = [backend.name for backend in taking_part if backend.baseline == PLAIN]
    others = [backend.name for backend in taking_part if backend.baseline != PLAIN]
    picks = {"all": range(len(items))} | {
        category: [i for i, item in enumerate(items) if item.category == category]
        for category in dict.fromkeys(item.category for item in items)
    }
    return [
        {
            "method": name,
            "over": other,
            **{
                group: _ratio([samples[name][i] for i in chosen], [samples[other][i] for i in chosen])
                for group, chosen in picks.items()
            },
        }
        for name in own
        for other in others
    ]


def _ratio(own: Sequence[Sample], other: Sequence[Sample]) -> dict[str, Any]:
    rates = [(one.tokens_per_second, two.tokens_per_second) for one, two in zip(own, other, strict=True)]
    return {
        "total": _figures(ratio_of_rates(*totals(own), *totals(other))),
        "median": _figures(median_of([a / b for a, b in rates if a is not None and b is not None])),
    }


def _figures(estimate: Estimate | None) -> list[float] | None:
    """The value and the ends of its 95 % interval."""
    return None if estimate is None else [round(value, 4) for value in (estimate.value, estimate.low, estimate.high)]


def against_others(report: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A line for each pair: totals with their interval, the median, and totals by category."""
    groups = [name for name in (report["ratios"] or [{}])[0] if name not in ("method", "over", "all")]
    rows = [
        (
            pair["method"],
            pair["over"],
            _shown(pair["all"]["total"]),
            _shown(pair["all"]["median"]),
            *(number((pair[group]["total"] or [None])[0], 2) for group in groups),
        )
        for pair in report["ratios"]
    ]
    return ("method", "over", "total", "median", *groups), rows


def _shown(figures: Sequence[float] | None) -> str:
    return "-" if figures is None else f"{figures[0]:.2f} [{figures[1]:.2f}, {figures[2]:.2f}]"
