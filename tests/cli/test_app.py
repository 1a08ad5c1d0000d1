from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import forerun as library
from forerun.cli import app, main

from .conftest import Ran

Call = Callable[..., Ran]
COMMANDS = ("generate", "chat", "compare", "demo", "models", "drafters", "policies")


def test_the_version_is_the_packages(forerun: Call) -> None:
    ran = forerun("--version")

    assert (ran.status, ran.out) == (0, f"{library.__version__}\n")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_the_commands(forerun: Call, arguments: tuple[str, ...]) -> None:
    ran = forerun(*arguments)

    assert ran.status == 0
    for command in COMMANDS:
        assert command in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(forerun: Call, command: str) -> None:
    ran = forerun(command, "--help")

    assert ran.status == 0
    assert "Usage: forerun" in ran.out


def test_the_options_of_the_methods_stand_in_the_help(forerun: Call) -> None:
    out = forerun("generate", "--help").out

    assert "--exit-layer" in out
    assert "Of fixed, heuristic" in out


def test_an_interrupt_ends_quietly(forerun: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**options: object) -> int:
        raise typer.Abort

    monkeypatch.setattr(sys.modules["forerun.cli.app"], "app", interrupted)
    ran = forerun("models")

    assert (ran.status, ran.out, ran.err) == (130, "", "")


def test_a_mistake_of_ours_is_not_dressed_up(forerun: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**options: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(sys.modules["forerun.cli.app"], "app", broken)
    with pytest.raises(ZeroDivisionError):
        forerun("models")


def test_main_exits_with_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["forerun", "frobnicate"])
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert app.main is main


def test_as_a_process_it_keeps_stdout_clean(tiny: str) -> None:
    command = [Path(sys.executable).parent / "forerun", "generate", tiny, "hello", "--max-new-tokens", "4", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["ids"]) == 4
    assert "Traceback" not in done.stderr
