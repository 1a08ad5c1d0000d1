"""Plots of a policy report: the rates, which don't depend on the machine, and the speed-ups under given costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...plotting import check_plotting

MARKERS = "os^vD<>pP*Xh"


def write_plots(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write pareto.png, speedups.png and, where rules were timed, measured.png into folder; their paths."""
    check_plotting()
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    under = report["simulated"]
    size = (4.0 * len(under), 1.5 + 0.3 * len(under[0]["rules"]))
    pictures: list[tuple[str, tuple[float, float], Callable[[Any], None]]] = [
        ("pareto", (7.0, 5.0), lambda figure: _pareto(figure.subplots(), under[0])),
        ("speedups", size, lambda figure: _speedups(figure.subplots(1, len(under), squeeze=False)[0], under)),
    ]
    if report["timed"]:
        pictures.append(("measured", (5.5, 5.0), lambda figure: _measured(figure.subplots(), report["timed"])))
    written: list[Path] = []
    for name, size, draw in pictures:
        figure: Any = Figure(figsize=size, layout="constrained")
        draw(figure)
        written.append(folder / f"{name}.png")
        figure.savefig(written[-1], dpi=120)
    return written


def _pareto(axes: Any, under: Mapping[str, Any]) -> None:
    """SpecDec++'s axes (arXiv 2405.19715): the nearer to the lower left, the better on every machine."""
    fixed = under["fixed"][1:]
    axes.plot(*_rates(fixed), color="grey", marker=".", label="fixed")
    for one in fixed:
        axes.annotate(one["k"], (one["verification_rate"], one["discard_rate"]), fontsize=7, color="grey")
    for number, rule in enumerate(under["rules"]):
        axes.plot(*_rates([rule]), MARKERS[number % len(MARKERS)], label=rule["label"])
    axes.plot(*_rates([under["agreeing"]]), "k*", label="exactly what is accepted")
    axes.set_xlabel("target forwards per token (verification rate)")
    axes.set_ylabel("discarded tokens per token (discard rate)")
    axes.set_title(f"rules under costs: {under['costs']}", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def _rates(points: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    return [one["verification_rate"] for one in points], [one["discard_rate"] for one in points]


def _speedups(panels: Sequence[Any], simulated: Sequence[Mapping[str, Any]]) -> None:
    for axes, under in zip(panels, simulated, strict=True):
        best = under["fixed"][under["best_fixed"]["k"]]
        bars = [(f"fixed k={best['k']}", best), *((rule["label"], rule) for rule in under["rules"])]
        bars.append(("oracle", under["oracle"]))
        drawn = axes.barh([name for name, _ in bars], [one["speedup"] for _, one in bars])
        rates = [one["tokens_per_second"] for _, one in bars]
        axes.bar_label(drawn, ["" if rate is None else f"{rate:.1f} tok/s" for rate in rates], fontsize=6)
        axes.margins(x=0.2)
        axes.axvline(best["speedup"], color="black", linewidth=0.8)
        axes.invert_yaxis()
        axes.tick_params(labelsize=7)
        axes.set_xlabel(f"simulated speed-up, costs: {under['costs']}", fontsize=8)


def _measured(axes: Any, timed: Sequence[Mapping[str, Any]]) -> None:
    for number, one in enumerate(timed):
        low, high = one["speedup_quartiles"]
        error = [[one["speedup"] - low], [high - one["speedup"]]]
        marker = MARKERS[number % len(MARKERS)]
        axes.errorbar([one["simulated"]], [one["speedup"]], yerr=error, fmt=marker, label=one["label"])
    ends = [value for one in timed for value in (one["simulated"], one["speedup"])]
    axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color="black", linewidth=0.8)
    axes.set_xlabel("simulated speed-up")
    axes.set_ylabel("measured speed-up (median, quartiles)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
