from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from forerun.cli.app import COMMANDS as AT_THE_TOP
from forerun.cli.app import app
from forerun.cli.deferred import Deferred, opened
from forerun.cli.train.app import COMMANDS as OF_TRAINING

from .conftest import Ran

# what takes seconds to import, and nobody needs to be told of a flag
HEAVY = ("torch", "transformers", "safetensors", "numpy", "huggingface_hub", "matplotlib", "optuna", "scipy")

# runs a command line for each line of stdin, and says of each what it printed, its status and what is imported now
PROBE = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from forerun.cli import run
for line in sys.stdin:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = run(json.loads(line))
    print(json.dumps([said.getvalue(), status, sorted(sys.modules)]), flush=True)
"""


def probed(*lines: tuple[str, ...]) -> Iterator[tuple[str, int, set[str]]]:
    """What command lines print, their status and the modules that are imported then, one after the other in a process."""
    asked = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([sys.executable, "-c", PROBE], input=asked, capture_output=True, text=True, check=True)
    for told in done.stdout.splitlines():
        said, status, modules = json.loads(told)
        yield said, status, set(modules)


def paths(command: Any = app, called: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words that call each command and each group."""
    yield called
    for name, one in vars(opened(command)).get("commands", {}).items():
        yield from paths(one, (*called, name))


def test_neither_help_nor_a_refusal_waits_for_torch() -> None:
    helped = [(*called, "--help") for called in paths()]
    refused = [("frobnicate",), ("--guess",), ("train", "frobnicate"), ("generate", "m", "p", "--guess", "3")]
    refused += [("generate",), ("compare", "m", "--repeats", "many"), ("generate", "m", "p", "--drafter", "guess")]
    lines = [("--version",), (), *helped, ("drafters",), ("policies",), *refused]
    seen = list(probed(*lines))

    assert len(helped) > len(AT_THE_TOP) + len(OF_TRAINING)
    assert [(line, sorted(modules & {*HEAVY})) for line, (_, _, modules) in zip(lines, seen, strict=True)] == [
        (line, []) for line in lines
    ]
    assert [status for _, status, _ in seen] == [0] * (len(lines) - len(refused)) + [2] * len(refused)
    assert all(said for said, _, _ in seen)


def test_the_help_of_all_commands_imports_none_of_them() -> None:
    places = {f"forerun.cli.{place.partition(':')[0]}" for place, _ in (*AT_THE_TOP.values(), *OF_TRAINING.values())}
    whole, one = probed(("--help",), ("generate", "--help"))

    assert whole[2] & places == set()
    assert one[2] & places == {"forerun.cli.generate"}


@pytest.mark.parametrize("called", [called for called in paths() if called], ids=" ".join)
def test_a_summary_is_what_the_commands_own_help_begins_with(called: tuple[str, ...]) -> None:
    command: Any = app
    for name in called:
        command = vars(opened(command))["commands"][name]
    own = opened(command)

    assert own.name == command.name == called[-1]
    assert command.help.split("\n\n")[0] == own.help.split("\n\n")[0]


def test_a_deferred_command_is_called_as_if_it_were_itself(forerun: Any) -> None:
    ran: Ran = forerun("train", "draft", "--help")

    assert ran.status == 0
    assert "Usage: forerun train draft" in ran.out
    assert "--from-layers" in ran.out


def test_what_stands_for_nothing_else_is_opened_as_it_is() -> None:
    assert opened(app) is app
    assert isinstance(vars(app)["commands"]["generate"], Deferred)
