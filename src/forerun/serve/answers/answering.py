"""The updates of one request's answers, as they come to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from time import perf_counter, time
from typing import final
from uuid import uuid4

from ...engine.in_flight import Job
from ...errors import UnsupportedOption
from ..refusal import Refusal, failed, invalid
from ..worker.update import Ticket, Update
from .usage import Tally


@final
class Answering:
    """jobs: one for each choice. Made on the event loop, where updates are delivered."""

    def __init__(self, jobs: Sequence[Job], prompt_tokens: int, model: str, prefix: str) -> None:
        self.id = f"{prefix}-{uuid4().hex}"
        self.created = int(time())
        self.begun = perf_counter()
        self.model = model
        self.tally = Tally(prompt_tokens)
        self._updates: asyncio.Queue[tuple[int, Update]] = asyncio.Queue()
        self.tickets = [Ticket(job, partial(self._deliver, index), self.begun) for index, job in enumerate(jobs)]

    def _deliver(self, index: int, update: Update) -> None:
        self._updates.put_nowait((index, update))

    async def updates(self) -> AsyncGenerator[tuple[int, Update]]:
        """(number of the choice, update) until all have ended. Raises Refusal where one of them failed."""
        left = len(self.tickets)
        while left:
            index, update = await self._updates.get()
            if update.error is not None:
                raise told(update.error)
            self.tally.add(update)
            left -= update.ended
            yield index, update


def told(error: Exception) -> Refusal:
    """What a client is told of the error that ended its request."""
    if isinstance(error, Refusal):
        return error
    return invalid(str(error)) if isinstance(error, UnsupportedOption) else failed()
