"""A sequence: the keys and values of one text for one model, as a committed prefix and scratch rows behind it.

Forwards only ever add scratch rows; `keep` commits some and drops the rest. So a rejected branch, or a row computed with
skipped layers, can't leak into the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence as Series
from typing import final

import torch
from torch import Tensor

from ..core import ROOT
from .packed import Part
from .plan import FULL, LayerPlan
from .request import Request, Rows, submit
from .runner import Runner
from .store import Store

CHUNK = 512


@final
class Sequence:
    """One text. ids are the committed tokens; scratch rows hold a token and its parent row, ROOT behind the prefix."""

    def __init__(self, runner: Runner, drafting: bool = False, capacity: int = 256) -> None:
        self.runner = runner
        self.ids: list[int] = []
        self._store = Store(runner.num_layers, capacity)
        self._drafting = drafting
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._exits: list[tuple[int, Tensor] | None] = []

    @property
    def scratch(self) -> tuple[int, ...]:
        """The tokens of the scratch rows."""
        return tuple(self._tokens)

    async def forward(
        self,
        tokens: Series[int],
        parents: Series[int] | None = None,
        plan: LayerPlan = FULL,
        taps: frozenset[int] = frozenset(),
    ) -> Rows:
        """Add scratch rows to draft with, in the order given; rows for all of them.

        parents[i] is a scratch row before it or ROOT; None continues the last scratch row. Positions follow the parents.
        """
        first = len(self._tokens)
        own = range(first - 1, first - 1 + len(tokens)) if parents is None else parents
        exit_layer = plan.exit_layer
        wanted = taps if exit_layer is None else taps | {exit_layer}
        rows = await self._run(tokens, own, len(tokens), plan, wanted, drafting=True)
        for i in range(len(tokens)):
            self._exits.append(None if exit_layer is None else (exit_layer, rows.taps[exit_layer][i]))
        return rows

    async def complete(self, tokens: Series[int], parents: Series[int], taps: frozenset[int] = frozenset()) -> Rows:
        """Make the scratch rows exactly these, each computed by the whole model; rows for all of them.

        Leading rows that were drafted by an early exit, with equal tokens and parents, go on from their exit states and
        don't compute the layers below again (LayerSkip, arXiv 2404.16710, section 5). All others are computed anew.
        """
        enter, states = self._resumable(tokens, parents)
        self.drop()
        rows = await self._run(tokens, parents, len(tokens), FULL, taps, self._drafting, enter, states)
        self._exits.extend([None] * len(tokens))
        return rows

    def _resumable(self, tokens: Series[int], parents: Series[int]) -> tuple[int, list[Tensor]]:
        enter = 0
        states: list[Tensor] = []
        known = zip(self._tokens, self._parents, self._exits, strict=True)
        for token, parent, (old_token, old_parent, exit_state) in zip(tokens, parents, known, strict=False):
            if exit_state is None or (token, parent) != (old_token, old_parent):
                break
            if states and exit_state[0] != enter:
                break
            enter = exit_state[0]
            states.append(exit_state[1])
        return enter, states

    async def _run(
        self,
        tokens: Series[int],
        parents: Series[int],
        want: int,
        plan: LayerPlan,
        taps: frozenset[int],
        drafting: bool,
        enter: int = 0,
        states: Series[Tensor] = (),
    ) -> Rows:
        first = len(self._tokens)
        every = [*self._parents, *parents]
        depths: list[int] = []
        for row, parent in enumerate(every):
            if not ROOT <= parent < row:
                raise ValueError(f"scratch row {row} has parent {parent}; it must lie in [{ROOT}, {row - 1}]")
            depths.append(0 if parent == ROOT else depths[parent] + 1)
        self.runner.check_rows(tokens, len(self.ids) + max(depths, default=0) + 1)
        chain = every == list(range(ROOT, len(every) - 1))
        part = Part(
            store=self._store,
            committed=len(self.ids),
            first=first,
            n=len(tokens),
            depths=depths,
            ancestors=None if chain else _ancestors(every)[first:],
            entry=torch.stack(list(states)) if states else None,
            enter=enter,
        )
        rows = await submit(Request(self.runner, tuple(tokens), part, want, plan, taps, drafting))
        self._tokens += tokens
        self._parents += parents
        return rows

    def keep(self, rows: Series[int]) -> None:
        """Commit these scratch rows, in order, and drop the others."""
        committed = len(self.ids)
        self._store.move([committed + row for row in rows], committed)
        self.ids += [self._tokens[row] for row in rows]
        self.drop()

    def drop(self) -> None:
        """Forget the scratch rows."""
        self._tokens, self._parents, self._exits = [], [], []

    async def sync(self, ids: Series[int]) -> Rows:
        """Make the prefix equal ids, reusing what matches; the row of the last token (always computed).

        Long texts go through in chunks. Raises ValueError on no ids.
        """
        if not ids:
            raise ValueError("a sequence needs at least one token to sync to")
        self.drop()
        del self.ids[shared_prefix(self.ids, ids[:-1]) :]
        while True:
            chunk = ids[len(self.ids) : len(self.ids) + CHUNK]
            want = 1 if len(self.ids) + len(chunk) == len(ids) else 0
            rows = await self._run(chunk, range(ROOT, len(chunk) - 1), want, FULL, frozenset(), self._drafting)
            self.keep(range(len(chunk)))
            if want:
                return rows


def shared_prefix(one: Series[int], other: Series[int]) -> int:
    """How many leading tokens two texts share."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))


def _ancestors(parents: Series[int]) -> Tensor:
    """Bool [m, m]: whether column j is row i or an ancestor of it."""
    seen = torch.eye(len(parents), dtype=torch.bool)
    for row, parent in enumerate(parents):
        if parent != ROOT:
            seen[row] |= seen[parent]
    return seen
