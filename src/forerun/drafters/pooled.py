"""What drafters share that draft chains on a sequence of their own, taken from a pool and given back to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series

from ..core.drafter import Drafter
from ..core.values import Context, Step
from ..models.packed.pool import SequencePool
from ..models.packed.sequence import Sequence
from .chain import chained


class Pooled(Drafter):
    """Takes its sequence for the first text that it reads, so that what the pool knows of it needn't be read again."""

    branches = True

    def __init__(self, pool: SequencePool) -> None:
        self._pool = pool
        self._own: Sequence | None = None

    def draft(self, context: Context) -> AsyncGenerator[Step]:
        return chained(self, context)

    def _taken(self, ids: Series[int]) -> Sequence:
        if self._own is None:
            self._own = self._pool.acquire(ids)
        return self._own

    def close(self) -> None:
        if self._own is not None:
            self._pool.release(self._own)
