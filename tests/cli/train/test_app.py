"""Which commands of forerun train run in a launch of several processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forerun.cli.train.app import COMMANDS, TOGETHER

from ..conftest import Ran

Call = Callable[..., Ran]


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - set(TOGETHER)))
def test_what_one_process_does_is_refused_in_a_launch_of_several(
    forerun: Call, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    ran = forerun("train", command)
    assert (ran.status, ran.out) == (2, "")
    assert f"train {command} runs in one process, and 2 were launched; call it without a launcher" in ran.said


@pytest.mark.parametrize("command", TOGETHER)
def test_trainings_may_run_in_several_processes(forerun: Call, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "Missing argument" in forerun("train", command).said


def test_a_launch_of_one_process_runs_everything(forerun: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert "one process" not in forerun("train", "disco").said


@pytest.mark.parametrize("command", ["layerskip", "exit-adapter", "draft"])
def test_fsdp_1_is_refused_by_every_training(
    forerun: Call, tiny: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "1")
    shape = {"draft": ("--shape", "layers=2"), "exit-adapter": ("--exit-layer", 4)}.get(command, ())
    ran = forerun("train", command, tiny, "--data", f"{tmp_path}/none", "--output", f"{tmp_path}/out", *shape)
    assert (ran.status, ran.out) == (2, "")
    assert "training shards with FSDP 2 only" in ran.said
