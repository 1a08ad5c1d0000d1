"""A process of its own for each family, with limits."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from forerun.families import forked
from forerun.families.forked import in_a_fork

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_what_work_gives_comes_back_and_its_process_is_another_one() -> None:
    assert in_a_fork(lambda: {"pid": os.getpid()})["pid"] != os.getpid()


def test_more_memory_than_allowed_is_told() -> None:
    def greedy() -> dict[str, Any]:
        return {"size": len(bytearray(64 << 30))}

    with pytest.raises(RuntimeError, match="it takes more than 8 GiB"):
        in_a_fork(greedy, memory=8 << 30)


def test_more_time_than_allowed_is_told() -> None:
    def busy() -> dict[str, Any]:
        while True:
            pass

    with pytest.raises(RuntimeError, match="it took longer than 1 seconds"):
        in_a_fork(busy, seconds=1)


def test_a_process_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "PATIENCE", 1)

    def idle() -> dict[str, Any]:
        time.sleep(60)
        return {}

    with pytest.raises(RuntimeError, match="it took longer than 1 seconds"):
        in_a_fork(idle, seconds=1)


def test_an_error_is_told() -> None:
    def failing() -> dict[str, Any]:
        raise KeyError("no such field")

    with pytest.raises(RuntimeError, match="KeyError: 'no such field'"):
        in_a_fork(failing)


def test_a_process_that_ends_of_itself_is_told() -> None:
    def killed() -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    with pytest.raises(RuntimeError, match="its process ended with status 9"):
        in_a_fork(killed)
