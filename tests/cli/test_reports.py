"""A report's JSON and pictures, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forerun.cli.reports import write_pictures, write_report


def drawn(told: Mapping[str, Any], folder: Path) -> list[Path]:
    return [folder / f"{name}.png" for name in told["pictures"]]


def test_a_report_is_json_without_infinities(tmp_path: Path) -> None:
    told = {"pictures": [], "speedup": float("inf"), "loss": float("nan"), "steps": (1, 2.5)}
    write_report(told, tmp_path / "report.json", drawn)

    assert json.loads((tmp_path / "report.json").read_text()) == {
        **told,
        "speedup": None,
        "loss": None,
        "steps": [1, 2.5],
    }


def test_every_picture_is_told_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures({"pictures": ["a", "b"]}, tmp_path, drawn)

    out, err = capsys.readouterr()
    assert out == ""
    assert "".join(err.split()) == f"wrote{tmp_path}/a.pngwrote{tmp_path}/b.png"


def test_pictures_lie_beside_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report({"pictures": ["a"]}, tmp_path / "design.json", drawn)

    assert "".join(capsys.readouterr().err.split()) == f"wrote{tmp_path}/a.png"


def test_without_pictures_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures({"pictures": []}, tmp_path, drawn)

    assert capsys.readouterr().err == ""
