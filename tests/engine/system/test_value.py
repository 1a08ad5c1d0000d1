from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

import forerun
from forerun.engine.system.value import MACHINE, System, Target, machine_of, target_of
from forerun.errors import UnsupportedOption
from forerun.testing import tiny_model

HERE = {"weights": "", "runner": "auto"}


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


@pytest.fixture
def system(engine: forerun.Engine) -> System:
    return System("mine", "lookup", {}, "fixed", {"k": 2}, target_of(engine, "tiny"), machine_of(engine))


def test_a_target_is_what_the_engine_runs(engine: forerun.Engine) -> None:
    assert target_of(engine, "tiny", "int8", "lean") == Target("tiny", engine.identity, "float32", "int8", "lean")


def test_the_machine_is_told_with_threads_and_versions(engine: forerun.Engine) -> None:
    told = machine_of(engine)

    assert tuple(told) == MACHINE
    assert told["threads"] == torch.get_num_threads()
    assert told["versions"]["torch"] == torch.__version__


def test_a_method_stands_there_as_in_the_file() -> None:
    system = System("mine", "self", {"exit_layer": 2}, "threshold", {"confidence": 0.5})

    assert system.method() == {
        "drafter": {"name": "self", "exit_layer": 2},
        "policy": {"name": "threshold", "confidence": 0.5},
    }


def test_a_method_for_any_model_has_no_target() -> None:
    assert "target" not in System("mine", "lookup").as_dict()


def test_a_system_is_told_whole(system: System, engine: forerun.Engine) -> None:
    told = replace(system, measured={"speedup": 1.5}).as_dict()

    assert told["target"]["identity"] == engine.identity.as_dict()
    assert told["measured"] == {"speedup": 1.5}
    assert told["tuned_on"] == machine_of(engine)


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ({}, {"dtype": "float32", "weights": "int8", "runner": "lean", "activations": None}),
        ({"weights": None}, {"dtype": "float32", "weights": "int8", "runner": "lean", "activations": None}),
        (
            {"weights": "", "dtype": "bfloat16"},
            {"dtype": "bfloat16", "weights": "", "runner": "lean", "activations": None},
        ),
    ],
)
def test_what_is_given_overrides_the_systems_form(
    engine: forerun.Engine, given: dict[str, Any], form: dict[str, Any]
) -> None:
    system = System("mine", "lookup", target=target_of(engine, "tiny", "int8", "lean"))

    assert system.opening(given) == form


def test_a_method_for_any_model_says_nothing_about_the_form() -> None:
    assert System("mine", "lookup").opening({"dtype": None, "weights": "int4"}) == {"weights": "int4"}


def test_the_method_runs_on_the_model(engine: forerun.Engine) -> None:
    system = System("mine", "self", {"exit_layer": 3}, "fixed", {"k": 2}, target_of(engine, "tiny"))
    result = system.method_on(engine).generate([5, 6, 7], max_new_tokens=12)

    assert result.stats.drafted > 0
    assert result.ids == engine.generate([5, 6, 7], max_new_tokens=12).ids


@pytest.mark.parametrize("difference", [{"num_layers": 5}, {"weights": "0" * 16}, {"vocabulary": "x"}])
def test_another_model_is_refused_with_what_differs(
    system: System, engine: forerun.Engine, difference: dict[str, Any]
) -> None:
    identity = replace(engine.identity, **{"vocabulary": "y", **difference})
    target = replace(target_of(engine, "tiny"), identity=replace(engine.identity, vocabulary="y"))

    with pytest.raises(UnsupportedOption, match=f"'mine' was tuned for tiny, .*: {next(iter(difference))} is"):
        replace(system, target=target).check(identity)


def test_a_method_for_any_model_fits_any(engine: forerun.Engine) -> None:
    System("mine", "lookup").check(engine.identity)


def test_nothing_departs_where_it_was_tuned(system: System, engine: forerun.Engine) -> None:
    assert system.departures(engine, HERE) is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"threads": 99}, "threads is [0-9]+ here and 99 there"),
        ({"hardware": "an abacus"}, "hardware is .+ here and an abacus there"),
        ({"versions": {"torch": "1.0"}}, "torch is .+ here and 1.0 there"),
        ({"versions": {"torch": torch.__version__, "beads": "3"}}, "beads is unknown here and 3 there"),
        ({"python": "2.7"}, "python is .+ here and 2.7 there"),
    ],
)
def test_another_machine_or_version_is_told(
    system: System, engine: forerun.Engine, changed: dict[str, Any], told: str
) -> None:
    departures = replace(system, tuned_on={**system.tuned_on, **changed}).departures(engine, HERE)

    assert departures is not None
    assert re.search(rf"'mine' was tuned under other conditions.*: {told}$", departures)


def test_another_form_is_told(system: System, engine: forerun.Engine) -> None:
    target = Target("tiny", engine.identity, "bfloat16", "int4", "lean", 8)
    departures = replace(system, target=target).departures(engine, HERE)

    assert departures is not None
    for told in (
        "dtype is float32 here and bfloat16 there",
        "weights is the model's own here and int4 there",
        "runner is auto here and lean there",
        "activations is as usual here and 8 there",
    ):
        assert told in departures


def test_what_was_not_written_down_departs_from_nothing(engine: forerun.Engine) -> None:
    system = System("mine", "lookup", target=Target("tiny", engine.identity), tuned_on={"command": "forerun tune"})

    assert system.departures(engine, HERE) is None
