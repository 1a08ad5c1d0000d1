"""Plot of a design: the cost of a drafted token by depth, and the predicted speed-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..plotting import check_plotting


def write_plots(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write design.png into folder, which is created if necessary, if shapes were measured; returns its path."""
    check_plotting()
    from matplotlib.figure import Figure

    shapes: Sequence[Mapping[str, Any]] = report["shapes"]
    if not shapes:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    figure: Any = Figure(figsize=(10.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (width, vocabulary), line in lines(shapes).items():
        label = f"width {width}, {vocabulary} tokens"
        depths = [one["layers"] for one in line]
        left.plot(depths, [one["later_ms"] for one in line], marker="o", label=label)
        right.plot(depths, [one["predicted"]["speedup"] for one in line], marker="o", label=label)
    left.axhline(report["target"]["step_ms"], color="black", linewidth=0.8, label="the target's step")
    right.axhline(1.0, color="black", linewidth=0.8)
    left.set_ylabel("milliseconds a drafted token")
    right.set_ylabel("predicted speed-up at the guessed acceptance")
    for axes in (left, right):
        axes.set_xlabel("layers")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    left.legend(fontsize=7)
    path = folder / "design.png"
    figure.savefig(path, dpi=120)
    return [path]


def lines(shapes: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], list[Mapping[str, Any]]]:
    """By width and vocabulary, the shapes from the shallowest to the deepest."""
    found: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for one in sorted(shapes, key=lambda one: (-one["vocabulary"], -one["width"], one["layers"])):
        found.setdefault((one["width"], one["vocabulary"]), []).append(one)
    return found
