"""Requests in flight: they join and leave between two forwards that they share, and each gives its pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from ..core.drive import Batch, Event
from ..core.values import Context, Round
from .answer import Answer, Piece

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt on its way to an answer. alone: its processors may keep state that another request would change.

    speculates: whether anything may be drafted for it. rounds: the source of its rounds, which takes a sequence when it is
    first run and gives it back whatever happens.
    """

    context: Context
    answer: Answer
    rounds: Callable[[], AsyncGenerator[Round]]
    alone: bool = False
    speculates: bool = True


@dataclass(frozen=True, slots=True)
class Progress(Generic[K]):
    """What a step gave a request: a round and its pieces, or the last piece with the result, or the error that ended it."""

    key: K
    pieces: tuple[Piece, ...] = ()
    round: Round | None = None
    error: Exception | None = None

    @property
    def ended(self) -> bool:
        return self.error is not None or (bool(self.pieces) and self.pieces[-1].result is not None)


@final
class InFlight(Generic[K]):
    """Jobs that run together. For one thread. most_read: as in Batch."""

    def __init__(self, most_read: int | None = None) -> None:
        self._jobs: dict[K, Job] = {}
        self._batch: Batch[K, Round] = Batch(most_read)

    def __len__(self) -> int:
        return len(self._batch)

    def add(self, key: K, job: Job) -> None:
        """Run a job from the next step on. Raises ValueError where the key is in flight already."""
        self._batch.add(key, job.rounds())
        self._jobs[key] = job

    def cancel(self, key: K) -> None:
        """End a request, whose sequence goes back at once; nothing happens if it has ended."""
        self._jobs.pop(key, None)
        self._batch.cancel(key)

    def step(self) -> list[Progress[K]]:
        """Run one packed forward. An error ends its own request alone."""
        return [self._progress(event) for event in self._batch.step() if event.key in self._jobs]

    def close(self) -> None:
        """End all requests."""
        self._batch.close()
        self._jobs.clear()

    def _progress(self, event: Event[K, Round]) -> Progress[K]:
        key, job = event.key, self._jobs[event.key]
        if event.error is not None:
            del self._jobs[key]
            return Progress(key, error=event.error)
        if event.value is None:
            del self._jobs[key]
            return Progress(key, (job.answer.end(),))
        pieces = tuple(job.answer.take(event.value, event.native))
        if job.answer.stopped():
            self.cancel(key)
            pieces = (*pieces, job.answer.end())
        return Progress(key, pieces, event.value)
