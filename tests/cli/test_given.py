from __future__ import annotations

import inspect
from typing import Any

import pytest

import forerun as library
from forerun.cli import given as module
from forerun.cli.given import OPENING, PLAIN, RESERVED, open_engine
from forerun.cli.method import Method


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
    monkeypatch.setattr(module, "load", lambda model, **options: seen.update(options, model=model))
    method = Method("self", "fixed", {"exit_layer": 2}, {"k": 3})
    open_engine("tiny", method, {"dtype": "float32", "weights": "int8", "seed": 3})

    assert (seen["model"], seen["dtype"], seen["weights"], seen["runner"]) == ("tiny", "float32", "int8", "auto")
    assert (seen["drafter"], seen["drafter_options"]) == ("self", {"exit_layer": 2})
    assert (seen["policy"], seen["policy_options"]) == ("fixed", {"k": 3})
    assert "seed" not in seen
    assert capsys.readouterr().err == "loading tiny\n"


def test_plain_decoding_drafts_nothing() -> None:
    assert PLAIN.label == "none, fixed"
