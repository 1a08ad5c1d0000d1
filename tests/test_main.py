"""python -m forerun."""

from __future__ import annotations

import importlib
import subprocess
import sys


def test_the_module_is_the_command_line() -> None:
    ran = subprocess.run([sys.executable, "-m", "forerun", "dance"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "unknown command 'dance'; known: generate" in ran.stderr


def test_importing_it_runs_nothing() -> None:
    assert importlib.import_module("forerun.__main__").main
