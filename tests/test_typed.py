"""What a user's type checker makes of calls: right ones pass mypy --strict, each wrong one is refused on its line."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_overloads

import pytest

import forerun
from forerun import Engine

ROOT = Path(__file__).parents[1]
RIGHT = [ROOT / "tests" / "typed" / "right.py", *sorted((ROOT / "examples").glob("*.py"))]
WRONG = ROOT / "tests" / "typed" / "wrong.py"
EXPECTED = re.compile(r"# error: \[([\w-]+)\]$")
FOUND = re.compile(r"^(?P<file>.+?):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$")


def refused() -> set[tuple[str, int, str]]:
    """File, line and code of each error. The cache is the one of make lint, which has read torch already."""
    files = [file.relative_to(ROOT).as_posix() for file in (*RIGHT, WRONG)]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", *files]
    told = subprocess.run(command, cwd=ROOT, env={**os.environ, "MYPYPATH": "src"}, capture_output=True, text=True)
    errors = [line for line in told.stdout.splitlines() if ": error: " in line]
    found = [one for line in errors if (one := FOUND.match(line)) is not None]
    assert not told.stderr
    assert len(found) == len(errors) > 0
    return {(one["file"], int(one["line"]), one["code"]) for one in found}


# one test, since processes that share the work of pytest would write the cache at the same time
def test_right_calls_pass_and_each_wrong_one_is_refused_on_its_line() -> None:
    lines = WRONG.read_text(encoding="utf-8").splitlines()
    expected = {(n, found[1]) for n, line in enumerate(lines, 1) if (found := EXPECTED.search(line))}
    name, errors = WRONG.relative_to(ROOT).as_posix(), refused()

    assert sorted(one for one in errors if one[0] != name) == []
    assert {(line, code) for file, line, code in errors if file == name} == expected
    assert len(expected) > 25


def test_every_call_of_the_wrong_ones_says_how_it_is_wrong() -> None:
    calls = [
        line
        for line in WRONG.read_text(encoding="utf-8").splitlines()
        if re.match(r" +(engine|forerun|list|print)\b", line)
    ]

    assert [line for line in calls if not EXPECTED.search(line)] == ['    engine.generate("text", **asked)']


@pytest.mark.parametrize(
    "call",
    [
        forerun.load,
        forerun.load_system,
        forerun.custom_generate,
        Engine.generate,
        Engine.each,
        Engine.stream,
        Engine.using,
        *get_overloads(Engine.generate),
    ],
)
def test_the_signature_of_a_public_call_leaves_nothing_open(call: Callable[..., object]) -> None:
    signature = inspect.signature(call)
    annotations = [one.annotation for name, one in signature.parameters.items() if name != "self"]

    assert inspect.Parameter.empty not in annotations
    assert [one for one in (*annotations, signature.return_annotation) if re.search(r"\bAny\b", str(one))] == []


def test_users_checkers_read_the_types() -> None:
    assert (ROOT / "src" / "forerun" / "py.typed").is_file()
