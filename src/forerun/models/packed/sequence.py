"""A sequence: the keys and values of one text for one model, as a committed prefix and scratch rows after it.

Forwards only ever add scratch rows; `keep` commits some and drops the rest. So a rejected branch can't leak into the
prefix, and rows computed with skipped layers are refused there.
"""

from __future__ import annotations

from collections.abc import Sequence as Series
from dataclasses import dataclass
from time import perf_counter
from typing import final

import torch
from torch import Tensor

from ...core.forward import Rows, submit
from ...core.values import ROOT
from .forward import Part
from .guesses import through_guesses
from .plan import FULL, LayerPlan
from .request import Chain, Request
from .runner import Runner
from .states import States

FEW = 8  # rows of a reading that nobody need wait for


@dataclass(slots=True, eq=False)
class _Row:
    """A scratch row. exits holds the inputs of its exit layer, its own at `place`, if plan is a pure early exit.

    taps are the layers whose states it was computed with.
    """

    token: int
    parent: int
    depth: int
    plan: LayerPlan
    exits: Tensor | None
    place: int
    taps: frozenset[int]


@final
class Sequence:
    """One text. ids are the committed tokens; scratch rows hold a token and its parent row, ROOT after the prefix.

    plan: the weights and the head of its committed rows. Raises ValueError on one that leaves out layers.
    """

    def __init__(self, runner: Runner, drafting: bool = False, capacity: int = 256, plan: LayerPlan = FULL) -> None:
        if plan.attention or plan.mlp:
            raise ValueError("a sequence's own plan must keep all layers: its rows are what later ones read")
        self.runner = runner
        self.plan = plan
        self.ids: list[int] = []
        self._store = runner.new_store(capacity)
        self._drafting = drafting
        self._rows: list[_Row] = []
        self._states: dict[int, States] = {}

    @property
    def scratch(self) -> tuple[int, ...]:
        """The tokens of the scratch rows."""
        return tuple(row.token for row in self._rows)

    async def forward(
        self,
        tokens: Series[int],
        parents: Series[int] | None = None,
        plan: LayerPlan | None = None,
        taps: frozenset[int] = frozenset(),
        states: Tensor | None = None,
        want: int | None = None,
        chain: Chain | None = None,
    ) -> Rows:
        """Add scratch rows to draft with, in the order given; rows for the last `want` of them, all if None.

        chain: only the last row is wanted, and it goes on so if the runner chains or there are guesses to go by, and its
        context has room; all of Rows.tokens but the last one are scratch rows then, too.

        parents[i] is an earlier scratch row or ROOT; None continues the last scratch row. Positions follow the parents.
        plan: the sequence's own if None. states [n, D] are for runners that read more than tokens (an exit adapter). Raises
        ValueError where scratch rows lack keys that the plan's layers would read.
        """
        first = len(self._rows)
        own = range(first - 1, first - 1 + len(tokens)) if parents is None else parents
        plan = self.plan if plan is None else plan
        for row in self._rows:
            if row.plan is not plan and not row.plan.attention <= plan.attention:
                raise ValueError(
                    "the scratch rows left out layers that this plan attends in; drop or complete them first"
                )
        wanted = 1 if chain else len(tokens) if want is None else want
        rows = await self._run(tokens, own, wanted, plan, taps, drafting=True, states=states, chain=chain)
        self._add_chain(rows, len(tokens), plan, taps)
        return rows

    async def complete(self, tokens: Series[int], parents: Series[int], taps: frozenset[int] = frozenset()) -> Rows:
        """Make the scratch rows exactly these, each computed by the whole model; rows for all of them.

        Leading rows that were drafted by an early exit, with equal tokens and parents, continue from their exit states and
        skip the layers below (LayerSkip, arXiv 2404.16710, section 5). All others are recomputed.
        """
        enter, entry = self._resumable(tokens, parents)
        self.drop()
        return await self._run(tokens, parents, len(tokens), self.plan, taps, self._drafting, enter, entry)

    def _resumable(self, tokens: Series[int], parents: Series[int]) -> tuple[int, list[Tensor]]:
        """The layer at which leading scratch rows resume, and their states there."""
        enter = 0
        entry: list[Tensor] = []
        for token, parent, row in zip(tokens, parents, self._rows, strict=False):
            exit_layer = row.plan.resumes_at
            if exit_layer is None or row.exits is None or (token, parent) != (row.token, row.parent):
                break
            if entry and exit_layer != enter:
                break
            enter = exit_layer
            entry.append(row.exits[row.place])
        return enter, entry

    async def _run(
        self,
        tokens: Series[int],
        parents: Series[int],
        want: int,
        plan: LayerPlan,
        taps: frozenset[int],
        drafting: bool,
        enter: int = 0,
        entry: Series[Tensor] = (),
        states: Tensor | None = None,
        chain: Chain | None = None,
        reads: int = 0,
    ) -> Rows:
        """Rows of these tokens, which become scratch rows; what a chain adds is left to _add_chain."""
        first = len(self._rows)
        count, every = len(tokens), [*[row.parent for row in self._rows], *parents]
        straight = every == list(range(ROOT, len(every) - 1))
        depths = list(range(first + count)) if straight and count == len(parents) else self._depths(tokens, parents)
        length = len(self.ids) + max(depths, default=0) + 1
        on = self._held(chain, length) if chain and straight else None
        guesses = on.guesses if on else ()
        asked = (*tokens, *guesses)
        depths += range(length - len(self.ids), length - len(self.ids) + len(guesses))
        self.runner.check_rows(asked, length + len(guesses))
        part = Part(
            store=self._store,
            committed=len(self.ids),
            first=first,
            n=len(asked),
            depths=depths,
            ancestors=None if straight else _ancestors(every)[first:],
            entry=torch.stack(list(entry)) if entry else None,
            enter=enter,
            states=states,
        )
        exit_layer = plan.resumes_at
        wanted = taps if exit_layer is None else taps | {exit_layer}
        begun = perf_counter()
        by_itself = None if guesses else on
        request = Request(self.runner, asked, part, want + len(guesses), plan, wanted, drafting, by_itself, reads)
        rows = await submit(request)
        seconds = perf_counter() - begun
        if on and guesses:
            rows = through_guesses(rows, guesses, on.among)
        for layer in taps:
            self._states.setdefault(layer, States()).write(len(self.ids) + first, rows.taps[layer])
        exits = None if exit_layer is None else rows.taps[exit_layer]
        for place, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
            self._rows.append(_Row(token, parent, depths[first + place], plan, exits, place, taps))
        pack = rows.pack
        rows.seconds = seconds if pack is None else pack.seconds * len(asked) / pack.rows
        return rows

    def _held(self, chain: Chain, length: int) -> Chain | None:
        """As much of a chain as the runner computes and its context has room for, after a text of this length."""
        limit = self.runner.max_length
        most = chain.rows if limit is None else min(chain.rows, limit - length + 1)
        if guesses := chain.guesses[: most - 1]:
            return Chain(1 + len(guesses), chain.among, guesses)
        return Chain(most, chain.among) if self.runner.chains else None

    def _add_chain(self, rows: Rows, given: int, plan: LayerPlan, taps: frozenset[int]) -> None:
        """The scratch rows that followed `given` ones of a forward."""
        exits = None if plan.resumes_at is None else rows.taps[plan.resumes_at]
        depth = self._rows[-1].depth if self._rows else ROOT
        for place, token in enumerate(rows.tokens[:-1]):
            parent = len(self._rows) - 1
            self._rows.append(_Row(token, parent, depth + place + 1, plan, exits, given + place, taps))

    def _depths(self, tokens: Series[int], parents: Series[int]) -> list[int]:
        """Positions after the prefix, of the scratch rows and of the new ones."""
        if len(tokens) != len(parents):
            raise ValueError(f"each token needs a parent, got {len(tokens)} tokens and {len(parents)} parents")
        depths = [row.depth for row in self._rows]
        for row, parent in enumerate(parents, start=len(depths)):
            if not ROOT <= parent < row:
                raise ValueError(f"scratch row {row} has parent {parent}; it must lie in [{ROOT}, {row - 1}]")
            depths.append(0 if parent == ROOT else depths[parent] + 1)
        return depths

    def keep(self, rows: Series[int]) -> None:
        """Commit these scratch rows, a path from the prefix on, and drop the others.

        Raises ValueError on rows that are no such path, or that were computed with layers left out.
        """
        previous = ROOT
        for row in rows:
            if not 0 <= row < len(self._rows) or self._rows[row].parent != previous:
                raise ValueError(
                    f"kept rows must be a path of scratch rows, got {list(rows)}: {row} can't follow {previous}"
                )
            plan = self._rows[row].plan
            if plan is not self.plan and plan != self.plan:
                raise ValueError(f"scratch row {row} was computed with layers left out; complete it first")
            previous = row
        committed = len(self.ids)
        slots = [committed + row for row in rows]
        # the first rows, of an accepted chain, lie where they shall be
        if rows and previous != len(rows) - 1:
            self._store.move(slots, committed)
        for layer, states in self._states.items():
            if states.known == committed and all(layer in self._rows[row].taps for row in rows):
                states.move(slots, committed)
            else:
                states.forget(committed)
        self.ids += [self._rows[row].token for row in rows]
        self.drop()

    def drop(self) -> None:
        """Forget the scratch rows."""
        self._rows = []

    def states(self, layer: int) -> Tensor:
        """The input of this layer, [len(ids), D] (for the layer after the last: the output of the last one).

        Raises ValueError unless every committed row was computed with this tap.
        """
        return self._states.get(layer, States()).first(len(self.ids))

    async def sync(
        self,
        ids: Series[int],
        taps: frozenset[int] = frozenset(),
        states: Tensor | None = None,
        chain: Chain | None = None,
    ) -> Rows:
        """Make the prefix equal ids, reusing what matches; the row of the last token (always computed).

        taps: layers whose states must be known for all of ids afterwards. states [k, D]: as in forward, for the last k of
        ids, all that are computed. chain: as in forward, after the last of ids. Long texts are computed in chunks. Raises
        ValueError on no ids.
        """
        if not ids:
            raise ValueError("a sequence needs at least one token to sync to")
        self.drop()
        known = [self._states.get(layer, States()).known for layer in taps]
        del self.ids[min([shared_prefix(self.ids, ids[:-1]), *known]) :]
        for held in self._states.values():
            held.forget(len(self.ids))
        while True:
            chunk = ids[len(self.ids) : len(self.ids) + self.runner.chunk]
            want = 1 if len(self.ids) + len(chunk) == len(ids) else 0
            place = len(self.ids) - len(ids)
            own = None if states is None else states[place : place + len(chunk) or None]
            parents = range(ROOT, len(chunk) - 1)
            on = chain if want else None
            reads = len(chunk) if len(chunk) > FEW else 0
            rows = await self._run(
                chunk, parents, want, self.plan, taps, self._drafting, states=own, chain=on, reads=reads
            )
            self.keep(range(len(chunk)))
            if want:
                self._add_chain(rows, len(chunk), self.plan, taps)
                return rows


def shared_prefix(one: Series[int], other: Series[int]) -> int:
    """How many leading tokens two texts share."""
    count = min(len(one), len(other))
    # most often all are, which is told much faster at once
    if one[:count] == other[:count]:
        return count
    return next((i for i in range(count) if one[i] != other[i]), count)


def _ancestors(parents: Series[int]) -> Tensor:
    """Bool [m, m]: whether column j is row i or an ancestor of it."""
    seen = torch.eye(len(parents), dtype=torch.bool)
    for row, parent in enumerate(parents):
        if parent != ROOT:
            seen[row] |= seen[parent]
    return seen
