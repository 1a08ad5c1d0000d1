"""One family in a process of its own, with limits on its memory and its time: a fork of this one, which is warm."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable
from typing import Any

MEMORY = 4 << 30
SECONDS = 180
PATIENCE = 10


def in_a_fork(work: Callable[[], dict[str, Any]], seconds: int = SECONDS, memory: int = MEMORY) -> dict[str, Any]:
    """What work gives, which must be JSON. Raises RuntimeError that says what ended the process where it gave nothing.

    seconds are of the processor: on a busy machine it may wait PATIENCE times as long.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(work, writing, seconds, memory)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        told = answer.read()
    status = os.waitpid(child, 0)[1]
    if status == 0:
        return dict(json.loads(told))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGXCPU):
        raise RuntimeError(f"it took longer than {seconds} seconds")
    raise RuntimeError(told or f"its process ended with status {status}")


def _answer(work: Callable[[], dict[str, Any]], writing: int, seconds: int, memory: int) -> None:
    """The child's part, which never comes back."""
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        signal.alarm(PATIENCE * seconds)
        with os.fdopen(writing, "w", encoding="utf-8") as answer:
            try:
                answer.write(json.dumps(work()))
                status = 0
            except MemoryError:
                answer.write(f"it takes more than {memory >> 30} GiB")
            except Exception as error:
                answer.write(f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)
