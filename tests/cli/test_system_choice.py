from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forerun as library
from forerun.cli import system_choice as module
from forerun.cli.shared_options import OPENING
from forerun.cli.system_choice import opening_of
from forerun.engine.system.file import write_system
from forerun.engine.system.value import System, machine_of, target_of

from .conftest import Ran

Call = Callable[..., Ran]
SHORT = ("--max-new-tokens", "12")


@pytest.fixture(scope="module")
def system(tiny: str) -> System:
    engine = library.load(tiny, runner="hf")
    options = {"exit_layer": 2}
    return System("mine", "self", options, "fixed", {"k": 2}, target_of(engine, tiny, runner="hf"), machine_of(engine))


@pytest.fixture
def file(tmp_path: Path, system: System) -> Path:
    write_system(system, tmp_path / "system.json")
    return tmp_path / "system.json"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The flags that each model was opened with."""
    seen: list[dict[str, Any]] = []
    original = module.open_engine

    def spy(model: str, method: Any, given: Any) -> library.Engine:
        seen.append(dict(given))
        return original(model, method, given)

    monkeypatch.setattr(module, "open_engine", spy)
    return seen


def test_a_system_brings_its_method_and_how_the_model_is_opened(
    forerun: Call, tiny: str, file: Path, opened: list[dict[str, Any]]
) -> None:
    plain = json.loads(forerun("generate", tiny, "hello", *SHORT, "--json", "--drafter", "none").out)
    ran = forerun("generate", tiny, "hello", *SHORT, "--json", "--system", file)
    told = json.loads(ran.out)

    assert (ran.status, ran.said) == (0, "")
    assert told["ids"] == plain["ids"]
    assert 1 <= len(told["stats"]["acceptance_per_position"]) <= 2
    assert (opened[-1]["runner"], opened[-1]["dtype"]) == ("hf", "float32")


def test_a_flag_overrides_how_the_model_is_opened_and_one_is_told(
    forerun: Call, tiny: str, file: Path, opened: list[dict[str, Any]]
) -> None:
    ran = forerun("generate", tiny, "hello", *SHORT, "--json", "--system", file, "--runner", "lean")

    assert opened[-1]["runner"] == "lean"
    assert ran.said.endswith("so its speed may differ: runner is lean here and hf there")


def test_another_machine_is_told(forerun: Call, tiny: str, system: System, tmp_path: Path) -> None:
    write_system(replace(system, tuned_on={**system.tuned_on, "hardware": "an abacus"}), tmp_path / "s.json")
    ran = forerun("generate", tiny, "hello", *SHORT, "--json", "--system", tmp_path / "s.json")

    assert ran.status == 0
    assert ran.said.startswith("the system 'mine' was tuned under other conditions")
    assert ran.said.endswith("here and an abacus there")


def test_compare_measures_a_system(forerun: Call, tiny: str, file: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "hello"}\n')
    flags = ("--prompts", tmp_path / "prompts.jsonl", "--repeats", 1, "--json", "--system", file)
    told = json.loads(forerun("compare", tiny, *SHORT, *flags).out)

    assert told["method"] == "self exit_layer=2, fixed k=2"
    assert told["identical"]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--drafter", "lookup"), "--drafter"),
        (("--drafter", "self"), "--drafter"),
        (("--policy", "fixed"), "--policy"),
        (("--exit-layer", "3"), "--exit-layer"),
        (("--k", "3"), "--k"),
        (("--drafter-model", "other"), "--drafter-model"),
    ],
)
@pytest.mark.parametrize("command", [("generate", "hello"), ("compare",)])
def test_a_method_beside_a_system_is_refused(
    forerun: Call, tiny: str, file: Path, command: tuple[str, ...], flags: tuple[str, ...], named: str
) -> None:
    ran = forerun(command[0], tiny, *command[1:], "--system", file, *flags)

    assert (ran.status, ran.out) == (2, "")
    sentence = f"--system brings the drafter and the policy with their options; leave {named} out"
    assert ran.said == f"forerun: {sentence}"


def test_another_model_is_refused(forerun: Call, tiny: str, system: System, tmp_path: Path) -> None:
    assert system.target is not None
    other = replace(system.target, model="other", identity=replace(system.target.identity, weights="0" * 16))
    write_system(replace(system, target=other), tmp_path / "s.json")
    ran = forerun("generate", tiny, "hello", "--system", tmp_path / "s.json")

    assert (ran.status, ran.out) == (2, "")
    assert "was tuned for other, which is another model: weights is" in ran.said


def test_a_file_that_is_no_system_is_refused_before_the_model_is_loaded(
    forerun: Call, tiny: str, tmp_path: Path
) -> None:
    (tmp_path / "s.json").write_text("{}")
    ran = forerun("generate", tiny, "hello", "--system", tmp_path / "s.json")

    assert ran.status == 2
    assert "describes no system" in ran.err
    assert "loading" not in ran.err


def test_a_short_file_leaves_the_flags_as_they_are() -> None:
    given = {one.name: one.default for one in OPENING} | {"weights": "int8"}

    assert opening_of(System("mine", "lookup"), given) == given


def test_a_flag_at_its_default_leaves_it_to_the_system(system: System) -> None:
    given = {one.name: one.default for one in OPENING}

    assert opening_of(system, given) == given | {"dtype": "float32", "runner": "hf"}
    assert opening_of(system, given | {"dtype": "bfloat16"})["dtype"] == "bfloat16"
