"""The engine's thread: who runs, who waits, who leaves."""

from __future__ import annotations

from queue import Queue
from time import perf_counter
from typing import Any

import pytest

from forerun.serve.refusal import Refusal
from forerun.serve.worker.thread import EngineThread
from forerun.serve.worker.update import Ticket, Update

from ..running import engine

SECONDS = 60.0


def ticket(tokens: int = 5) -> Ticket:
    return Ticket(engine().prepare([5, 6, 7], {"max_new_tokens": tokens, "ignore_eos": True}), lambda update: None)


def started(running: int = 2, waiting: int = 2) -> tuple[EngineThread, Queue[tuple[Ticket, Update]]]:
    told: Queue[tuple[Ticket, Update]] = Queue()

    def tell(updates: Any) -> None:
        for one in updates:
            told.put(one)

    thread = EngineThread(running, waiting, 32, tell, lambda: None)
    thread.start()
    return thread, told


def test_each_answer_is_told_to_its_end() -> None:
    thread, told = started()
    tickets = [ticket(), ticket(7)]
    thread.submit(tickets)
    ends: dict[Ticket, int] = {}
    while len(ends) < 2:
        one, update = told.get(timeout=SECONDS)
        if update.result is not None:
            ends[one] = len(update.result.ids)
    thread.close(SECONDS)

    assert ends == {tickets[0]: 5, tickets[1]: 7}
    assert not thread.alive
    assert thread.running == thread.waiting == 0


def test_no_more_are_taken_than_there_is_room_for() -> None:
    thread, _ = started(running=1, waiting=2)
    thread.submit([ticket(200), ticket(200)])
    with pytest.raises(Refusal, match="this server takes 3 at a time") as caught:
        thread.submit([ticket(), ticket()])
    thread.close(0.0)

    assert caught.value.status == 429


def test_who_is_cancelled_hears_no_more_and_makes_room() -> None:
    thread, told = started(running=1)
    first, second = ticket(200), ticket(3)
    thread.submit([first, second])
    told.get(timeout=SECONDS)
    thread.cancel([first])
    while True:
        one, update = told.get(timeout=SECONDS)
        if one is second and update.ended:
            break
    thread.close(SECONDS)

    assert first.cancelled
    assert thread.running == 0


def test_who_waits_may_be_cancelled_before_running() -> None:
    thread, told = started(running=1)
    first, second = ticket(30), ticket(3)
    thread.submit([first, second])
    thread.cancel([second])
    thread.close(SECONDS)

    assert {told.get_nowait()[0] for _ in range(told.qsize())} == {first}


def test_closing_tells_those_that_are_late_and_takes_no_more() -> None:
    thread, told = started(running=1)
    tickets = [ticket(240), ticket(240)]
    thread.submit(tickets)
    told.get(timeout=SECONDS)
    thread.close(0.0)
    errors = {one for one, update in (told.get_nowait() for _ in range(told.qsize())) if update.error is not None}

    assert errors == set(tickets)
    with pytest.raises(Refusal, match="shutting down"):
        thread.submit([ticket()])


def test_closing_may_be_hurried() -> None:
    thread, told = started(running=1)
    thread.submit([ticket(240)])
    told.get(timeout=SECONDS)
    thread.hurry()
    begun = perf_counter()
    thread.close(SECONDS)

    assert perf_counter() - begun < SECONDS / 2
    assert not thread.alive


def test_a_failure_before_requests_join_is_theirs() -> None:
    told: Queue[tuple[Ticket, Update]] = Queue()

    def broken() -> None:
        raise RuntimeError("changed")

    thread = EngineThread(2, 2, 32, lambda updates: [told.put(one) for one in updates] and None, broken)
    thread.start()
    thread.submit([ticket()])
    _, update = told.get(timeout=SECONDS)
    thread.close(SECONDS)

    assert isinstance(update.error, RuntimeError)
