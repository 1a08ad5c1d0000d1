"""Plots of a tuning report: exits by draft length, skip sets by size, and all systems that were timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..plotting import check_plotting, draw_grid

Draw = Callable[[Any], None]


def write_plots(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write sweet_spot.png, less_is_more.png and systems.png into folder, those that there are numbers for; their paths."""
    check_plotting()
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    pictures: list[tuple[str, bool, Draw]] = [
        ("sweet_spot", bool(report["grid"]), lambda figure: draw_grid(figure, report["grid"], "predicted speed-up")),
        ("less_is_more", bool(report["less_is_more"]), lambda figure: _less_is_more(figure.subplots(), report)),
        ("systems", len(_points(report)) > 1, lambda figure: _systems(figure.subplots(), _points(report))),
    ]
    written: list[Path] = []
    for name, known, draw in pictures:
        if known:
            figure: Any = Figure(figsize=(7.5, 4.8), layout="constrained")
            draw(figure)
            written.append(folder / f"{name}.png")
            figure.savefig(written[-1], dpi=120)
    return written


def _less_is_more(axes: Any, report: Mapping[str, Any]) -> None:
    """Speed and match rate by the number of sublayers left out; dots are sets that the search timed."""
    curve, sets = report["less_is_more"], [one for one in report["skip_sets"] if not one["screened"]]
    skipped = [one["skipped"] for one in curve]
    axes.plot(skipped, [one["speedup"] for one in curve], marker="o", label="predicted speed-up, least harmful first")
    axes.plot(skipped, [one["match_rate"] for one in curve], marker="s", label="match rate, least harmful first")
    if sets:
        axes.scatter(
            [one["skipped"] for one in sets],
            [one["match_rate"] for one in sets],
            marker="x",
            color="grey",
            label="match rate, timed sets",
        )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("sublayers left out")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _points(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The systems that ran on the clock and decoded something."""
    return [one for one in report["trials"] if one["speedup"] is not None and one["tokens_per_round"]]


def _systems(axes: Any, points: Sequence[Mapping[str, Any]]) -> None:
    """The cost of a token in verification and in drafting, in plain steps: nearer to the lower left is faster.

    Lines connect equal speeds; systems that no other beats in both are ringed.
    """
    places = [
        (one["verify_cost"] / one["tokens_per_round"], one["draft_cost"] / one["tokens_per_round"]) for one in points
    ]
    for number, (one, (across, up)) in enumerate(zip(points, places, strict=True)):
        axes.plot([across], [up], "os^vD<>pP*Xh"[number % 12], label=f"{one['name']}: {one['speedup']:.2f} x")
    best = frontier(places)
    axes.plot([x for x, _ in best], [y for _, y in best], "o", markersize=14, fillstyle="none", color="black")
    right, top = max(x for x, _ in places) * 1.1, max(y for _, y in places) * 1.1 + 0.05
    for speed in (0.5, 0.75, 1.0, 1.5, 2.0, 3.0):
        axes.plot([0, 1 / speed], [1 / speed, 0], color="lightgrey", linewidth=0.8, zorder=0)
    axes.set_xlim(0, right)
    axes.set_ylim(-0.03 * top, top)
    axes.set_xlabel("checking a token, in plain steps")
    axes.set_ylabel("drafting a token, in plain steps")
    axes.legend(fontsize=7)


def frontier(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The places that no other beats in both directions, from left to right."""
    best: list[tuple[float, float]] = []
    for place in sorted(set(places)):
        if not best or place[1] < best[-1][1]:
            best.append(place)
    return best
