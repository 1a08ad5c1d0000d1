from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import forerun
from forerun.engine.system.file import write_system
from forerun.engine.system.load import load_system
from forerun.engine.system.value import System, machine_of, target_of
from forerun.errors import UnsupportedOption
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.runner import HFRunner
from forerun.testing import save_tiny, tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def plain(tiny: str) -> forerun.Engine:
    return forerun.load(tiny, runner="hf")


@pytest.fixture
def system(plain: forerun.Engine, tiny: str) -> System:
    target = target_of(plain, tiny, runner="hf")
    return System("mine", "self", {"exit_layer": 3}, "fixed", {"k": 2}, target, machine_of(plain))


def test_a_file_is_all_that_an_engine_needs(tmp_path: Path, system: System, plain: forerun.Engine) -> None:
    write_system(system, tmp_path / "system.json")
    engine = load_system(tmp_path / "system.json")
    result = engine.generate("hello", max_new_tokens=12)

    assert isinstance(engine.runner, HFRunner)
    assert result.stats.drafted > 0
    assert len(result.stats.acceptance_per_position) <= 2
    assert result.ids == plain.generate("hello", max_new_tokens=12).ids


def test_what_is_given_overrides_the_system_and_is_warned_of(system: System) -> None:
    with pytest.warns(UserWarning, match=r"dtype is bfloat16 here and float32 there.*runner is lean here and hf there"):
        engine = load_system(system, dtype="bfloat16", runner="lean")

    assert isinstance(engine.runner, LeanRunner)
    assert engine.runner.dtype == torch.bfloat16


def test_another_machine_is_warned_of(system: System) -> None:
    with pytest.warns(UserWarning, match=r"hardware is .* here and an abacus there$"):
        load_system(replace(system, tuned_on={**system.tuned_on, "hardware": "an abacus"}))


def test_another_model_is_refused_before_its_method_is_built(system: System) -> None:
    other = tiny_model("llama", num_hidden_layers=2)

    with pytest.raises(UnsupportedOption, match=r"was tuned for .*tiny, which is another model: num_layers is 2 here"):
        load_system(system, other)


def test_a_model_object_runs_on_its_own_modules(system: System) -> None:
    model = tiny_model("llama")
    tuned = replace(system, target=target_of(forerun.load(model), "mine", "int4", "lean"))

    with pytest.warns(UserWarning, match="weights is the model's own here and int4 there, runner is auto here"):
        engine = load_system(tuned, model)
    assert engine.generate([5, 6, 7], max_new_tokens=8).stats.drafted > 0


def test_small_weights_for_a_model_object_are_refused(system: System) -> None:
    with pytest.raises(UnsupportedOption, match="a model object runs on its own modules"):
        load_system(system, tiny_model("llama"), weights="int8")


def test_a_method_for_any_model_needs_one(tiny: str) -> None:
    method = System("short", "lookup")

    assert load_system(method, tiny).generate("abcabc", max_new_tokens=8).stats.tokens == 8
    with pytest.raises(UnsupportedOption, match="the system 'short' names no model; give one"):
        load_system(method)
