"""The driver: it runs the forwards that coroutines ask for, packing those of many requests together.

No asyncio is needed: a driver calls `coroutine.send`. Verifications wait while drafts are pending; otherwise the requests
would get out of phase and the packed forwards would shrink. A request that fails or is cancelled doesn't affect the others.
Long texts that are read, such as prompts, are the exception where most_read limits them: few of their rows at a time go
along with other requests' forwards, and nobody waits for them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Hashable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, TypeVar, final

from .forward import Request, Rows
from .values import Pack

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Cancelled(BaseException):
    """Thrown into a cancelled source that waits for a forward; don't catch it."""


@dataclass(frozen=True, slots=True)
class Event(Generic[K, T]):
    """A value of a source, or its end, with the error that ended it, if any.

    native: the seconds inside native code of the forwards since the last value, those of a pack counted whole.
    """

    key: K
    value: T | None = None
    error: Exception | None = None
    native: float = 0.0

    @property
    def ended(self) -> bool:
        return self.value is None


@final
class _Task(Generic[T]):
    """A source and the forward that it waits for."""

    def __init__(self, source: AsyncGenerator[T]) -> None:
        self.source = source
        self.request: Request | None = None
        self.answer: Rows | Exception | None = None
        self.native = 0.0
        self._coroutine: Coroutine[Request, Rows | None, T] | None = None

    def advance(self) -> T | None:
        """Run up to the next request (None) or the next value. Raises StopAsyncIteration at the end."""
        if self._coroutine is None:
            self._coroutine = self.source.__anext__()
        answer, self.answer = self.answer, None
        assert self._coroutine is not None
        try:
            if isinstance(answer, Exception):
                self.request = self._coroutine.throw(answer)
            else:
                self.request = self._coroutine.send(answer)
            return None
        except StopIteration as done:
            self._coroutine = None
            return done.value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the source at its current point; its `finally` blocks don't await."""
        if self._coroutine is not None:
            try:
                # not GeneratorExit: Python 3.11 doesn't pass that on to the generators awaited inside
                self._coroutine.throw(Cancelled())
            except (Cancelled, StopIteration, StopAsyncIteration):
                pass
        try:
            self.source.aclose().send(None)
        except StopIteration:
            pass


@final
class Batch(Generic[K, T]):
    """Sources that run together. Values must not be None.

    most_read: at most so many rows of texts that are read go into one forward, or one request's; None for any number.
    """

    def __init__(self, most_read: int | None = None) -> None:
        self._most_read = most_read
        self._reading_is_due = False
        self._tasks: dict[K, _Task[T]] = {}
        self._cancelled: set[K] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, key: K, source: AsyncGenerator[T]) -> None:
        """Run source from the next step on."""
        if key in self._tasks:
            raise ValueError(f"request {key!r} is in flight already")
        self._tasks[key] = _Task(source)

    def cancel(self, key: K) -> None:
        """Close a source: it gives no more events, and the others continue. Nothing happens if it has ended."""
        self._cancelled.add(key)
        if (task := self._tasks.pop(key, None)) is not None:
            task.close()

    def close(self) -> None:
        for key in list(self._tasks):
            self.cancel(key)

    def step(self) -> list[Event[K, T]]:
        """Run the most urgent packed forward, and the sources that waited for it up to their next forwards."""
        self._cancelled.clear()
        self._execute(self._urgent())
        events: list[Event[K, T]] = []
        for key, task in list(self._tasks.items()):
            self._advance(key, task, events)
        return events

    def run(self) -> Iterator[Event[K, T]]:
        """All events until every source has ended. The consumer may add and cancel sources in between."""
        while self._tasks:
            for event in self.step():
                if event.key not in self._cancelled:
                    yield event

    def values(self) -> Iterator[tuple[K, T]]:
        """What the sources give, likewise. Raises the first error that one of them ends with."""
        for event in self.run():
            if event.error is not None:
                raise event.error
            if event.value is not None:
                yield event.key, event.value

    def _advance(self, key: K, task: _Task[T], events: list[Event[K, T]]) -> None:
        """Run a source up to its next forward."""
        while task.request is None:
            try:
                value = task.advance()
            except StopAsyncIteration:
                del self._tasks[key]
                events.append(Event(key))
                return
            except Exception as error:
                del self._tasks[key]
                events.append(Event(key, error=error))
                return
            if value is not None:
                native, task.native = task.native, 0.0
                events.append(Event(key, value, native=native))

    def _urgent(self) -> list[_Task[T]]:
        """The waiting tasks whose forwards run next: drafts before verifications, and only those that can be packed."""
        waiting = [task for task in self._tasks.values() if task.request is not None]
        if len(waiting) <= 1:
            return waiting
        readers = [] if self._most_read is None else [task for task in waiting if task.request and task.request.reads]
        if not readers:
            return self._largest(waiting)
        ahead = self._largest([task for task in waiting if task not in readers])
        if not ahead or self._reading_is_due:
            self._reading_is_due = False
            return self._read_along(readers, readers[0])
        joining = self._read_along(readers, ahead[0])
        # a text that is read by another model has its turn after each verification
        self._reading_is_due = not joining and ahead[0].request is not None and not ahead[0].request.drafting
        return ahead + joining

    def _read_along(self, readers: list[_Task[T]], other: _Task[T]) -> list[_Task[T]]:
        """The first of the readers that can share a forward with another task, as many as may."""
        chosen: list[_Task[T]] = []
        rows = 0
        for task in readers:
            assert task.request is not None
            assert other.request is not None
            if task.request.packs_with == other.request.packs_with:
                rows += task.request.reads
                if chosen and rows > (self._most_read or 0):
                    break
                chosen.append(task)
        return chosen

    def _largest(self, waiting: list[_Task[T]]) -> list[_Task[T]]:
        """The most that can be packed, of the drafts if there are any."""
        drafting = [task for task in waiting if task.request and task.request.drafting]
        groups: dict[Hashable, list[_Task[T]]] = {}
        for task in drafting or waiting:
            assert task.request is not None
            groups.setdefault(task.request.packs_with, []).append(task)
        return max(groups.values(), key=len, default=[])

    def _execute(self, tasks: list[_Task[T]]) -> None:
        requests = [task.request for task in tasks if task.request is not None]
        if not requests:
            return
        begun = perf_counter()
        try:
            answers: list[Rows | Exception] = [*requests[0].runner.execute(requests)]
        except Exception as error:
            if len(tasks) > 1:
                for task in tasks:
                    self._execute([task])
                return
            answers = [error]
        pack = _pack(requests, perf_counter() - begun) if len(requests) > 1 else None
        for task, answer in zip(tasks, answers, strict=True):
            if isinstance(answer, Rows):
                task.native += answer.native
                answer.pack = pack
            task.request, task.answer = None, answer


def _pack(requests: list[Request], seconds: float) -> Pack:
    rows = sum(len(request.tokens) for request in requests)
    return Pack(len(requests), rows, seconds, any(request.reads for request in requests))


def drive(source: AsyncGenerator[T]) -> Iterator[T]:
    """Run one source alone. Closing the iterator closes the source."""
    batch: Batch[None, T] = Batch()
    batch.add(None, source)
    try:
        for _, value in batch.values():
            yield value
    finally:
        batch.close()
