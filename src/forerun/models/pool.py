"""The idle sequences of one runner, so that a conversation's next turn finds the keys and values of the last."""

from __future__ import annotations

from collections.abc import Sequence as Series
from typing import final

from .identity import Identity
from .plan import FULL, LayerPlan
from .runner import Runner
from .sequence import Sequence, shared_prefix


@final
class Pool:
    """Keeps up to `keep` idle sequences, the latest used. identity: which model the runner runs, where that is known.

    plan: with which weights and head the sequences are computed.
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

    def take(self, ids: Series[int] = ()) -> Sequence:
        """The idle sequence that shares the longest beginning with ids, or a new one where none shares any."""
        best = max(self._idle, key=lambda sequence: shared_prefix(sequence.ids, ids), default=None)
        if best is None or not shared_prefix(best.ids, ids):
            return Sequence(self.runner, self._drafting, plan=self._plan)
        self._idle.remove(best)
        return best

    def give(self, sequence: Sequence) -> None:
        """Give back a sequence; its scratch rows are dropped, its prefix is kept for the next who begins alike."""
        sequence.drop()
        self._idle.append(sequence)
        del self._idle[: -self._keep or None]

    def clear(self) -> None:
        """Drop the idle sequences."""
        self._idle.clear()
