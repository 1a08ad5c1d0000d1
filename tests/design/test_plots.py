"""The design as a picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.design.plots import lines, write_plots
from forerun.design.report import report_of
from forerun.errors import UnsupportedOption

from .designed import TARGET, designed, trained, untrained

SHAPES = (untrained(4, 1.25), untrained(1, 1.1), untrained(2, 1.2, width=288), untrained(1, 0.8, vocabulary=49152))


def test_a_picture_is_written(tmp_path: Path) -> None:
    report = report_of(designed(SHAPES), "smollm2", "a.jsonl", TARGET)
    (path,) = write_plots(report, tmp_path / "new" / "folder")
    assert path.name == "design.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_there_is_a_line_for_each_width_and_vocabulary_from_shallow_to_deep() -> None:
    told = report_of(designed(SHAPES), "smollm2", "a.jsonl", TARGET)["shapes"]
    assert {key: [one["layers"] for one in line] for key, line in lines(told).items()} == {
        (576, 49152): [1],
        (576, 8192): [1, 4],
        (288, 8192): [2],
    }


def test_candidates_alone_make_no_picture(tmp_path: Path) -> None:
    report = report_of(designed(candidates=(trained("only", 100, 7.0),)), "smollm2", "a.jsonl", TARGET)
    assert write_plots(report, tmp_path) == []


def test_without_matplotlib_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.plotting.find_spec", lambda name: None)
    with pytest.raises(UnsupportedOption, match="plots need matplotlib"):
        write_plots({"shapes": []}, tmp_path)
