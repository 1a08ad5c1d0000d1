"""Processes that measure by turns: each answers a JSON line with a JSON line, and sleeps while another one is asked.

So no engine's threads spin beside another's: torch's OpenMP threads go on spinning after an operation, and in one process
they would take the native pool's second processor. Runs in Pythons that have no forerun.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# what an OpenMP thread spins after a process's last operation is over by then
REST_SECONDS = 0.25


class Turn:
    """One such process: python FILE SETTINGS, with more variables in its environment."""

    def __init__(self, name: str, python: str, file: Path, settings: dict[str, Any], **variables: str) -> None:
        self.name = name
        command = [python, str(file), json.dumps(settings)]
        environment = {**os.environ, **variables}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self.about: dict[str, Any] = self._read()

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with exit code {self._process.wait()}; its words stand above")
        told: dict[str, Any] = json.loads(line)
        return told


def serve(open_subject: Callable[[dict[str, Any]], tuple[dict[str, Any], Callable[..., dict[str, Any]]]]) -> None:
    """In the process: open what the settings say, tell about it, and answer what is asked."""
    # what libraries print to standard output must not mix with the replies
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    about, measure = open_subject(json.loads(sys.argv[1]))
    print(json.dumps(about), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(**json.loads(line))), file=replies, flush=True)
