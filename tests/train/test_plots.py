from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun import plotting
from forerun.errors import UnsupportedOption
from forerun.train.plots import write_plots

pytest.importorskip("matplotlib")
PNG = b"\x89PNG\r\n\x1a\n"


def side(loss: float) -> dict[str, Any]:
    exits = [{"exit_layer": layer, "loss": loss - layer, "agreement": layer / 4} for layer in (1, 2, 3, 4)]
    return {"model": "m", "exits": exits}


def place(exit_layer: int, length: int, speedup: float) -> dict[str, Any]:
    return {"exit_layer": exit_layer, "length": length, "speedup": speedup}


def report(before: bool = True, speed: bool = True) -> dict[str, Any]:
    found = [place(2, 1, 1.2), place(2, 4, 1.6), place(1, 1, 0.9), place(1, 4, 1.1)]
    return {"quality": side(6), "before": side(9) if before else None, "places": found if speed else []}


def test_a_report_becomes_two_pictures(tmp_path: Path) -> None:
    written = write_plots(report(), tmp_path / "new" / "plots")

    assert [path.name for path in written] == ["exits.png", "sweet_spot.png"]
    for path in written:
        assert path.read_bytes().startswith(PNG)
        assert path.stat().st_size > 5000


def test_without_speed_there_is_no_heat_map(tmp_path: Path) -> None:
    assert [path.name for path in write_plots(report(speed=False), tmp_path)] == ["exits.png"]


@pytest.mark.parametrize("before", [True, False])
def test_lines_stand_for_loss_and_agreement_of_each_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    from matplotlib.axes import Axes

    drawn: list[tuple[str, list[float]]] = []
    plot = Axes.plot

    def watching(self: Axes, layers: list[int], values: list[float], **kwargs: Any) -> Any:
        drawn.append((kwargs["label"], values))
        return plot(self, layers, values, **kwargs)

    monkeypatch.setattr(Axes, "plot", watching)
    write_plots(report(before), tmp_path)
    shares = [0.25, 0.5, 0.75, 1.0]
    own = [("this model", [5, 4, 3, 2]), ("this model", shares)]
    assert drawn == [*own, ("before", [8, 7, 6, 5]), ("before", shares)] if before else own


def test_a_cell_of_the_heat_map_is_its_speedup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    tables: list[list[list[float]]] = []
    show = Axes.imshow

    def watching(self: Axes, table: list[list[float]], **kwargs: Any) -> Any:
        tables.append(table)
        return show(self, table, **kwargs)

    monkeypatch.setattr(Axes, "imshow", watching)
    write_plots(report(), tmp_path)
    assert tables == [[[0.9, 1.1], [1.2, 1.6]]]


def test_without_matplotlib_nothing_is_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plotting, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedOption, match="matplotlib"):
        write_plots(report(), tmp_path / "plots")
    assert list(tmp_path.iterdir()) == []
