"""Plots of a quality report: the quality of every exit, and where drafting pays most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..plotting import check_plotting, draw_grid

SIDES = {"quality": "this model", "before": "before"}


def write_plots(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write exits.png and, where speed was measured, sweet_spot.png into folder; their paths."""
    check_plotting()
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    _exits(figure.subplots(1, 2), report)
    written = [folder / "exits.png"]
    figure.savefig(written[0], dpi=120)
    if report["places"]:
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        draw_grid(figure, report["places"], "speed-up over plain decoding (median)")
        written.append(folder / "sweet_spot.png")
        figure.savefig(written[1], dpi=120)
    return written


def _exits(axes: Sequence[Any], report: Mapping[str, Any]) -> None:
    for side, name in SIDES.items():
        if report[side] is not None:
            exits = report[side]["exits"]
            layers = [one["exit_layer"] for one in exits]
            for panel, value in zip(axes, ("loss", "agreement"), strict=True):
                panel.plot(layers, [one[value] for one in exits], marker=".", label=name)
    for panel, title in zip(axes, ("loss per token", "agreement with the last layer"), strict=True):
        panel.set_xlabel("exit layer")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_ylabel(title)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    axes[1].set_ylim(0, 1.02)
