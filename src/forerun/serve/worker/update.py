"""What the engine's thread tells of a request after a step: light values alone, since a slow reader may let many wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import final

from ...engine.answer import Piece, Result, TokenLogprob
from ...engine.in_flight import Job


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """The pieces of a round, or the last one with the result, or the error that ended the request.

    draft: the drafted tokens, of which those in path were accepted; predicted: how many the request's prediction gave.
    held_back: nothing was to be drafted. at: when it was known (perf_counter).
    """

    pieces: tuple[Piece, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    draft: tuple[int, ...] = ()
    path: tuple[int, ...] = ()
    round: bool = False
    prefill: bool = False
    held_back: bool = False
    error: Exception | None = None
    at: float = 0.0

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> int:
        return sum(len(piece.ids) for piece in self.pieces)

    @property
    def result(self) -> Result | None:
        return self.pieces[-1].result if self.pieces else None

    @property
    def ended(self) -> bool:
        return self.error is not None or self.result is not None


@final
@dataclass(eq=False, slots=True, weakref_slot=True)
class Ticket:
    """One answer on its way. deliver is called on the event loop, with each update in order, until it was cancelled.

    told: how many log-probabilities were told.
    """

    job: Job
    deliver: Callable[[Update], None]
    arrived: float = field(default_factory=perf_counter)
    started: float | None = None
    told: int = 0
    cancelled: bool = False
