"""A server of another engine in a process of its own: started, waited for, and ended with all that it started."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

from ...bench.workers.llama_server import free_port
from ...errors import UnsupportedOption
from .asking import EngineFailed, alive

KEEPER = Path(__file__).with_name("keeper.py")
OPEN_SECONDS = 900.0
END_SECONDS = 10.0
# errors that stand for others
GENERAL = ("initialization failed. See root cause", "Failed to start the engine")
ERROR = re.compile(r"\b(\w*(?:Error|Exception|error|failed)\b.*)")


def port_for(wanted: int) -> int:
    """A free one where 0 is wanted. Raises UnsupportedOption on one that is taken."""
    if not wanted:
        return free_port()
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise UnsupportedOption(
                f"port {wanted} can't be had ({error.strerror}); end what listens there, or name another --port"
            ) from error
    return wanted


@final
class Server:
    """Raises EngineFailed where it doesn't come up. name is for messages."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        port: int,
        seconds: float = OPEN_SECONDS,
    ) -> None:
        self.name, self.url = name, f"http://127.0.0.1:{port}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        kept = [sys.executable, str(KEEPER), f"{END_SECONDS:g}", *command]
        try:
            self._process = subprocess.Popen(
                kept, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, env={**environment, **os.environ}
            )
        except OSError as error:
            self._log.close()
            raise EngineFailed(f"{name} can't be started: {error}") from error
        try:
            self._wait(seconds)
        except BaseException:
            self.close()
            raise

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def ends(self, seconds: float) -> bool:
        """Whether it has ended, or does within so many seconds."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def reason(self) -> str:
        """Why it ended, by what it wrote."""
        self._process.wait(END_SECONDS)
        return f"exit code {self._process.returncode}{last_words(self.log)}"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.ended:
                raise EngineFailed(f"{self.name} ended before it was ready ({self.reason()})")
            if alive(self.url):
                return
            time.sleep(0.05)
        raise EngineFailed(f"{self.name} was not ready within {seconds:.0f} s{last_words(self.log)}")


def last_words(log: str) -> str:
    """The error that a log tells of, else its last line; with what stands before it, empty where it says nothing."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [found[1] for line in lines if (found := ERROR.search(line)) and not any(one in line for one in GENERAL)]
    said = errors[-1] if errors else (lines or [""])[-1]
    return f"; it said: {' '.join(said.split())[:200]}" if said else ""
