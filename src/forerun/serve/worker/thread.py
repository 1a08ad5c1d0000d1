"""The thread that owns the running batch: it steps the forwards, and requests join and leave between them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Event, Thread
from time import perf_counter
from typing import final

from ...engine.in_flight import InFlight, Progress
from ..refusal import Refusal, shutting_down
from .failure import log_failure
from .update import Ticket, Update

Told = list[tuple[Ticket, Update]]

LOOK_AGAIN = 0.02  # seconds
LOG = logging.getLogger("forerun.serve")


@final
class EngineThread:
    """tell is called on the thread itself, after each step, with what the step gave. before: called when requests join.

    say: the log may hold what errors say.
    """

    def __init__(
        self,
        most_running: int,
        most_waiting: int,
        most_read: int,
        tell: Callable[[Told], None],
        before: Callable[[], None],
        say: bool = False,
    ) -> None:
        self._say = say
        self._most_read = most_read
        self._most_running = most_running
        self._most_waiting = most_waiting
        self._tell = tell
        self._before = before
        self._changed = Condition()
        self._waiting: deque[Ticket] = deque()
        self._leaving: list[Ticket] = []
        self._running: set[Ticket] = set()
        self._closing = False
        self._hurried = Event()
        self._flight: InFlight[Ticket] = InFlight(most_read)
        self._thread = Thread(target=self._run, name="forerun-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Let these run as soon as there is room. Raises Refusal where too many wait already, or none may come any more."""
        with self._changed:
            if self._closing:
                raise shutting_down()
            busy, most = len(self._running) + len(self._waiting), self._most_running + self._most_waiting
            if busy + len(tickets) > most:
                raise Refusal(
                    429,
                    f"{busy} answers are running or waiting, and this server takes {most} at a time; try again later",
                    code="queue_full",
                    kind="rate_limit_error",
                    headers={"Retry-After": "1"},
                )
            self._waiting.extend(tickets)
            self._changed.notify()

    def cancel(self, tickets: Sequence[Ticket]) -> None:
        """End these before the next forward; nothing more is delivered. Those that have ended stay as they are."""
        for ticket in tickets:
            ticket.cancelled = True
        self._let_leave(tickets)

    def _let_leave(self, tickets: Sequence[Ticket]) -> None:
        with self._changed:
            self._leaving += [ticket for ticket in tickets if ticket in self._running]
            if any(ticket in self._waiting for ticket in tickets):
                self._waiting = deque(one for one in self._waiting if one not in tickets)
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Take no more requests, let those there are end within so many seconds, then end them with an error."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        deadline = perf_counter() + seconds
        while self._thread.is_alive() and perf_counter() < deadline and not self._hurried.wait(LOOK_AGAIN):
            pass
        if not self._thread.is_alive():
            return
        with self._changed:
            late = [*self._running, *self._waiting]
        self._tell([(ticket, Update(error=shutting_down(), at=perf_counter())) for ticket in late])
        self._let_leave(late)
        self._thread.join()

    def hurry(self) -> None:
        """Let close wait no longer."""
        self._hurried.set()

    def _run(self) -> None:
        while self._await_work():
            if joined := self._let_move():
                self._add(joined)
            self._step()
        self._flight.close()

    def _await_work(self) -> bool:
        """Whether there is any more."""
        with self._changed:
            while not (self._waiting or self._leaving or self._running):
                if self._closing:
                    return False
                self._changed.wait()
            return True

    def _let_move(self) -> list[Ticket]:
        """Cancelled requests leave, and waiting ones take the room there is; those that join now."""
        with self._changed:
            leaving, self._leaving = self._leaving, []
            self._running.difference_update(leaving)
            joined: list[Ticket] = []
            while self._waiting and len(self._running) < self._most_running:
                joined.append(self._waiting.popleft())
                self._running.add(joined[-1])
        for ticket in leaving:
            self._flight.cancel(ticket)
        return joined

    def _add(self, joined: Sequence[Ticket]) -> None:
        now = perf_counter()
        try:
            self._before()
        except Exception as error:
            log_failure(LOG, error, self._say)
            self._end([(ticket, Update(error=error, at=now)) for ticket in joined])
            return
        for ticket in joined:
            ticket.started = now
            self._flight.add(ticket, ticket.job)

    def _step(self) -> None:
        try:
            progress = self._flight.step()
        except Exception as error:  # what no request of its own accounts for ends all, and the thread goes on
            log_failure(LOG, error, self._say)
            self._flight.close()
            self._flight = InFlight(self._most_read)
            with self._changed:
                running = list(self._running)
            self._end([(ticket, Update(error=error, at=perf_counter())) for ticket in running])
            return
        now = perf_counter()
        for one in progress:
            if one.error is not None:
                log_failure(LOG, one.error, self._say)
        self._end([(one.key, update_of(one, now)) for one in progress])

    def _end(self, told: Told) -> None:
        """Tell these, and let go of those that have ended."""
        with self._changed:
            self._running.difference_update(ticket for ticket, update in told if update.ended)
        if told:
            self._tell(told)


def update_of(progress: Progress[Ticket], now: float) -> Update:
    ticket, round = progress.key, progress.round
    known = ticket.job.answer.logprobs
    fresh, ticket.told = tuple(known[ticket.told :]), len(known)
    if round is None:
        return Update(progress.pieces, fresh, error=progress.error, at=now)
    return Update(
        progress.pieces,
        fresh,
        draft=round.draft.tokens,
        path=round.verdict.path,
        round=True,
        prefill=round.prefill,
        held_back=round.held_back,
        at=now,
    )
