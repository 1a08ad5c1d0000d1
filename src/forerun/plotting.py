"""Whether pictures can be drawn here, and the picture that two reports share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from .errors import UnsupportedOption


def check_plotting() -> None:
    """Raise UnsupportedOption where matplotlib is not installed: before a measurement that would end in it."""
    if find_spec("matplotlib") is None:
        raise UnsupportedOption("plots need matplotlib: pip install 'forerun[plot]'")


def draw_grid(figure: Any, places: Sequence[Mapping[str, Any]], label: str) -> None:
    """Draft lengths from left to right, exit layers from below; a cell's colour and number are its speed-up.

    places have exit_layer, length and speedup, every layer with every length. label says what the speed-ups are.
    """
    layers = sorted({place["exit_layer"] for place in places})
    lengths = sorted({place["length"] for place in places})
    speedups = {(place["exit_layer"], place["length"]): place["speedup"] for place in places}
    table = [[speedups[layer, length] for length in lengths] for layer in layers]
    axes = figure.subplots()
    image = axes.imshow(table, aspect="auto", origin="lower", cmap="viridis")
    middle = (min(map(min, table)) + max(map(max, table))) / 2
    for row, line in enumerate(table):
        for column, value in enumerate(line):
            colour = "white" if value < middle else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(lengths)), lengths)
    axes.set_yticks(range(len(layers)), layers)
    axes.set_xlabel("draft length")
    axes.set_ylabel("exit layer")
    figure.colorbar(image, ax=axes, label=label)
