"""The idle sequences of one runner, so that a conversation's next turn reuses the keys and values of the last."""

from __future__ import annotations

from collections.abc import Sequence as Series
from threading import RLock
from typing import final
from weakref import WeakKeyDictionary

from ...core.identity import Identity
from .plan import FULL, LayerPlan
from .runner import Runner
from .sequence import Sequence, shared_prefix


@final
class SequencePool:
    """Keeps up to `keep` idle sequences, the most recently used ones. identity: the model that the runner runs, if known.

    plan: the weights and the head that the sequences are computed with. Threads may share a pool.
    """

    def __init__(
        self,
        runner: Runner,
        drafting: bool = False,
        keep: int = 4,
        identity: Identity | None = None,
        plan: LayerPlan = FULL,
    ) -> None:
        self.runner = runner
        self.identity = identity
        self._drafting = drafting
        self._plan = plan
        self._keep = keep
        self._idle: list[Sequence] = []
        self._epoch = 0  # how often it was cleared
        self._begun: WeakKeyDictionary[Sequence, tuple[int, int]] = WeakKeyDictionary()
        # reentrant: the garbage collector may close a forgotten stream, which releases its sequence, at any time
        self._lock = RLock()

    def acquire(self, ids: Series[int] = ()) -> Sequence:
        """The idle sequence that shares the longest beginning with ids, or a new one where none shares any."""
        with self._lock:
            now = self._now
            idle = [sequence for sequence in self._idle if self._begun[sequence] == now]
            best = max(idle, key=lambda sequence: shared_prefix(sequence.ids, ids), default=None)
            if best is None or not shared_prefix(best.ids, ids):
                best = Sequence(self.runner, self._drafting, plan=self._plan)
                self._begun[best] = now
            self._idle = [sequence for sequence in idle if sequence is not best]
            return best

    def release(self, sequence: Sequence) -> None:
        """Return a sequence; its scratch rows are dropped, its prefix is kept for the next text that begins alike.

        A sequence from before the pool was cleared, or before the weights changed, is dropped.
        """
        sequence.drop()
        with self._lock:
            if self._begun.setdefault(sequence, self._now) == self._now:
                self._idle.append(sequence)
                del self._idle[: -self._keep or None]

    def clear(self) -> None:
        """Drop the idle sequences now, and those in use once they are released."""
        with self._lock:
            self._epoch += 1
            self._idle.clear()

    @property
    def empty(self) -> bool:
        """Whether no idle sequence is kept."""
        return not self._idle

    @property
    def _now(self) -> tuple[int, int]:
        return self._epoch, self.runner.version
