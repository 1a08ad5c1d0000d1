"""The process that runs another engine: requests go to its standard input, replies come from its standard output.

It runs in a group of its own, so that all of it can be ended.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, final

from .backend import PeerFailed

WORKERS = Path(__file__).parent / "workers"


@final
class Worker:
    """A running worker file. Every failure is a PeerFailed with the peer's name and the reason."""

    def __init__(self, name: str, python: str, file: Path, threads: int) -> None:
        self._name = name
        variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(variables, str(threads)), "TOKENIZERS_PARALLELISM": "false"}
        command = [python, str(WORKERS / "protocol.py"), str(file)]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=environment,
                encoding="utf-8",
                # a library's log may hold any bytes, and a reader that fails would let the pipe fill up
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise PeerFailed(f"peer {name} can't be started with {python}: {error}") from error
        self._replies: queue.Queue[str | None] = queue.Queue()
        self._last_words: deque[str] = deque(maxlen=20)
        self._readers = [
            threading.Thread(target=self._read_replies, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and wait for its reply. Raises PeerFailed on an error, an exit, or a timeout."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._replies.get(timeout=seconds)
        except queue.Empty:
            raise PeerFailed(f"peer {self._name} gave no answer within {seconds:.0f} s") from None
        except OSError:
            line = None
        if line is None:
            raise PeerFailed(f"peer {self._name} ended ({self._ending()})")
        try:
            reply: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError as error:
            raise PeerFailed(f"peer {self._name} sent what is no JSON: {line[:80]!r}") from error
        if not isinstance(reply, dict):
            raise PeerFailed(f"peer {self._name} sent what is no reply: {line[:80]!r}")
        if "error" in reply:
            raise PeerFailed(f"peer {self._name}: {reply['error']}")
        return reply

    def close(self) -> None:
        """End the process and all that it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def _ending(self) -> str:
        code = self._process.wait(timeout=10)
        self._readers[1].join(timeout=10)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = next((line for line in reversed(self._last_words) if line.strip()), "")
        return f"{how}; it said: {said.strip()}" if said else how

    def _read_replies(self, stream: IO[str]) -> None:
        for line in stream:
            self._replies.put(line)
        self._replies.put(None)

    def _read_log(self, stream: IO[str]) -> None:
        for line in stream:
            self._last_words.append(line)
