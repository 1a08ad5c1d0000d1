"""The report's pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.errors import UnsupportedOption
from forerun.tune.replay.plots import write_plots
from forerun.tune.replay.report import Variant, default_rules, report
from forerun.tune.replay.round_costs import constant
from forerun.tune.replay.timing import Timed

from ..traced import by_hand

PNG = b"\x89PNG"
TRACE = by_hand([(1, [0.9, 0.1, 0.4]), (0, [0.9] * 2), (1, [0.8]), (0, [])])


def test_pictures_are_written_into_a_new_folder(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    timed = Timed("fixed k=2", 1.2, (1.1, 1.3), 1.25, 0.04, 30.0, 25.0, 2.0, 2.0, 6, 6).as_dict()
    simulated = report(TRACE, [*default_rules(), [Variant("fixed", {"k": 2})]], [constant(0.1), constant(0.3)])
    files = write_plots({"simulated": simulated, "timed": [timed]}, tmp_path / "new")

    assert [file.name for file in files] == ["pareto.png", "speedups.png", "measured.png"]
    assert all(file.read_bytes().startswith(PNG) for file in files)


def test_nothing_is_drawn_of_what_was_not_timed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = write_plots({"simulated": report(TRACE, [], [constant(0.1)]), "timed": []}, tmp_path)

    assert [file.name for file in files] == ["pareto.png", "speedups.png"]


def test_missing_matplotlib_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.plotting.find_spec", lambda name: None)
    with pytest.raises(UnsupportedOption, match="pip install"):
        write_plots({"simulated": [], "timed": []}, tmp_path / "none")
    assert not (tmp_path / "none").exists()
