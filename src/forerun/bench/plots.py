"""Plots of the report: speed-up by category, tokens per round by category, and the parts of the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..plotting import check_plotting


def write_plots(report: dict[str, Any], folder: Path) -> list[Path]:
    """Write the PNG files into folder, which is created if necessary, and return their paths."""
    check_plotting()
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    methods = report["methods"]
    drafting = [method for method in methods if (method["acceptance"] or {}).get("drafted_per_round")]
    timed = [method for method in methods if method["seconds"] is not None]
    written: list[Path] = []
    for name, draw, shown in (
        ("speedup", _speedups, [method for method in methods if method["name"] != method["baseline"]]),
        ("tokens_per_round", _tokens_per_round, drafting),
        ("time", _times, timed),
    ):
        if shown:
            figure = Figure(figsize=(max(7.0, 1.2 * len(methods[0]["categories"]) + 3), 4.2), layout="constrained")
            draw(figure.subplots(), shown)
            written.append(folder / f"{name}.png")
            figure.savefig(written[-1], dpi=120)
    return written


def _speedups(axes: Any, methods: list[dict[str, Any]]) -> None:
    def bar(scores: dict[str, Any]) -> tuple[float, float, float] | None:
        return None if scores["speedup"] is None else (scores["speedup"], *scores["speedup_interval"])

    _grouped(axes, methods, bar)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_ylabel("speed-up over plain decoding\n(median, 95 % interval)")


def _tokens_per_round(axes: Any, methods: list[dict[str, Any]]) -> None:
    def bar(scores: dict[str, Any]) -> tuple[float, float, float]:
        value = scores["acceptance"]["tokens_per_round"]
        return value, value, value

    _grouped(axes, methods, bar)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_ylabel("tokens per round")


def _grouped(axes: Any, methods: list[dict[str, Any]], bar: Any) -> None:
    """A group of bars for each category and for all prompts, a bar for each method."""
    groups = ["all", *methods[0]["categories"]]
    width = 0.8 / len(methods)
    for index, method in enumerate(methods):
        bars = [bar(method), *map(bar, method["categories"].values())]
        places = [group - 0.4 + (index + 0.5) * width for group, drawn in enumerate(bars) if drawn is not None]
        known = [drawn for drawn in bars if drawn is not None]
        heights = [value for value, _, _ in known]
        below = [max(value - low, 0.0) for value, low, _ in known]
        above = [max(high - value, 0.0) for value, _, high in known]
        axes.bar(places, heights, width, yerr=(below, above), capsize=2, label=method["name"])
    axes.set_xticks(range(len(groups)), groups, rotation=20)
    axes.legend(fontsize=8)


def _times(axes: Any, methods: list[dict[str, Any]]) -> None:
    names = [method["name"] for method in methods]
    left = [0.0] * len(methods)
    for part in methods[0]["seconds"]:
        share = [
            1000 * method["seconds"][part] / method["decoded_tokens"] if method["decoded_tokens"] else 0.0
            for method in methods
        ]
        axes.barh(names, share, left=left, label=part)
        left = [start + width for start, width in zip(left, share, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds per decoded token")
    axes.legend(fontsize=8)
