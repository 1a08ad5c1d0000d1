from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import forerun as library
from forerun.bench import calibration
from forerun.bench.calibration import Opened
from forerun.cli.method import Method
from forerun.cli.shared_options import OPENING, PLAIN, RESERVED, open_engine
from forerun.core.cost import Cost, Costs, Point
from forerun.engine import engine as opening


def test_every_way_to_open_a_model_has_a_flag_with_the_librarys_default() -> None:
    parameters = inspect.signature(library.load).parameters
    ways = {name: one.default for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}
    ways.pop("drafter_options")
    ways.pop("policy_options")

    assert {one.name: one.default for one in OPENING} == ways


def test_no_method_takes_the_place_of_an_opening_flag() -> None:
    assert {one.name for one in OPENING} <= set(RESERVED)


def test_an_engine_is_opened_as_the_flags_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(opening, "load", lambda model, **options: seen.update(options, model=model))
    monkeypatch.setattr(calibration, "use_kept_cost", lambda opened: False)
    method = Method("self", "fixed", {"exit_layer": 2}, {"k": 3})
    open_engine("tiny", method, {"dtype": "float32", "weights": "int8", "seed": 3})

    assert (seen["model"], seen["dtype"], seen["weights"], seen["runner"]) == ("tiny", "float32", "int8", "auto")
    assert (seen["drafter"], seen["drafter_options"]) == ("self", {"exit_layer": 2})
    assert (seen["policy"], seen["policy_options"]) == ("fixed", {"k": 3})
    assert "seed" not in seen
    assert capsys.readouterr().err == "loading tiny\n"


def test_a_calibration_pads_the_engine_and_one_is_told(
    tiny: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    given = {"runner": "hf", "dtype": "bfloat16"}
    opened = Opened(tiny, open_engine(tiny, PLAIN, given))
    points = (Point(1, 64, 30.0), Point(2, 64, 10.0))
    cost = Cost(opened.engine.name, "HFRunner", "bfloat16", "full", points)
    monkeypatch.setattr(calibration, "measure", lambda subjects, tick: Costs((cost,)))
    calibration.calibrated(opened)
    assert "padded" not in capsys.readouterr().err

    engine = open_engine(tiny, PLAIN, given)

    assert engine.runner.padding(1) == 2
    assert "forwards are padded, as the calibration advises" in capsys.readouterr().err
    assert engine.runner.cost == cost.padded()


def test_plain_decoding_drafts_nothing() -> None:
    assert PLAIN.label == "none, fixed"
