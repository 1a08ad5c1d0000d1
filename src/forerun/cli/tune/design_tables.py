"""The tables of forerun design, of its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST = 12

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def shapes_table(told: Mapping[str, Any], most: int = MOST) -> Table:
    """The first shapes; acceptance is guessed, what is needed is not."""
    columns = (
        *("layers", "width", "mlp", "heads", "tokens", "M", "MB", "ms", "break even", f"{told['goal']} x"),
        *("guessed", "k", "x plain"),
    )
    return columns, [
        (
            *(str(one[name]) for name in ("layers", "width", "mlp", "heads", "vocabulary")),
            f"{one['parameters']['whole'] / 1e6:.1f}",
            f"{one['parameters']['megabytes']:.0f}",
            f"{one['later_ms']:.2f}",
            _share(one["needed_to_break_even"]),
            _share(one["needed_for_goal"]),
            _share(one["acceptance"]),
            str(one["predicted"]["k"]),
            f"{one['predicted']['speedup']:.2f}",
        )
        for one in told["shapes"][:most]
    ]


def depth_table(told: Mapping[str, Any]) -> Table:
    columns = ("shape", "M read a token", "ms a drafted token")
    return columns, [
        (one["shape"], f"{one['read'] / 1e6:.1f}", f"{one['ms']:.2f}") for one in told["depth_and_width"]["rows"]
    ]


def candidates_table(told: Mapping[str, Any]) -> Table:
    from ...bench.intervals import number

    columns = ("candidate", "M", "perplexity", "acceptance", "ms", "k", "per round", "tokens/s", "x plain")
    return columns, [
        (
            one["name"],
            f"{one['parameters']['whole'] / 1e6:.1f}",
            number(one["perplexity"], 2),
            _share(one["acceptance"]),
            f"{one['later_ms']:.2f}",
            str(one["predicted"]["k"]),
            f"{one['predicted']['tokens_per_round']:.2f}",
            f"{one['predicted']['tokens_per_second']:.1f}",
            f"{one['predicted']['speedup']:.2f}",
        )
        for one in told["candidates"]
    ]


def _share(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f}"
