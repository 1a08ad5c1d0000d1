"""--threads holds for torch and for the native step, on every command that runs a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from forerun.cli import threads as module
from forerun.cli.app import COMMANDS, app
from forerun.cli.deferred import opened
from forerun.cli.shared_options import RESERVED
from forerun.cli.threads import cores, use_threads
from forerun.models.lean.native.machine import machine

from .conftest import Ran

Call = Callable[..., Ran]
# they compute nothing with a model, or a few forwards only
WITHOUT = {"models", "drafters", "drafts", "corpus", "simulate", "policies", "train", "export"}


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def flags_of(command: Any) -> set[str]:
    return {name for parameter in opened(command).params for name in parameter.opts}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT))
def test_every_command_that_runs_a_model_takes_it(name: str) -> None:
    assert "--threads" in flags_of(app.commands[name])


@pytest.mark.parametrize(
    ("group", "name"),
    [
        *(("train", name) for name in ("prompts", "answers", "layerskip", "draft", "exit-adapter", "acceptance-head")),
        ("policies", "compare"),
    ],
)
def test_commands_in_groups_take_it(group: str, name: str) -> None:
    commands = vars(opened(app.commands[group]))["commands"]
    assert "--threads" in flags_of(commands[name])


def test_no_method_takes_its_place() -> None:
    assert "threads" in RESERVED


def test_torch_and_the_native_step_compute_with_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 3)
    assert use_threads(3) == 3
    assert torch.get_num_threads() == machine().threads == 3
    assert use_threads(1) == 1
    assert torch.get_num_threads() == machine().threads == 1


def test_without_it_nothing_changes() -> None:
    before = torch.get_num_threads()
    assert use_threads(None) is None
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("wrong", [0, -1, 4])
def test_what_is_out_of_range_is_refused(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 3)
    with pytest.raises(ValueError, match=rf"--threads must be 1 to 3 \(the cores here\), got {wrong}"):
        use_threads(wrong)


def test_cores_are_those_of_the_process() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)


def test_a_command_takes_it(forerun: Call, tiny: str) -> None:
    torch.set_num_threads(1)
    ran = forerun("generate", tiny, "hello", "--max-new-tokens", 2, "--threads", cores())
    assert ran.status == 0
    assert torch.get_num_threads() == cores()


def test_a_wrong_number_is_said_before_the_model_is_loaded(forerun: Call, tiny: str) -> None:
    ran = forerun("generate", tiny, "hello", "--threads", 0)
    assert ran.status == 2
    assert ran.err == (
        f"forerun: --threads must be 1 to {cores()} (the cores here), got 0; more would wait for each other\n"
    )


def test_a_word_is_refused(forerun: Call, tiny: str) -> None:
    ran = forerun("generate", tiny, "hello", "--threads", "many")
    assert ran.status == 2
    assert "'--threads': Input should be a valid integer" in ran.err


def test_help_leaves_the_threads_alone(forerun: Call) -> None:
    before = torch.get_num_threads()
    assert forerun("generate", "--threads", cores(), "--help").status == 0
    assert torch.get_num_threads() == before
