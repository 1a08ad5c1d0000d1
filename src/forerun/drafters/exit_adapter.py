"""A small trained block drafts on the states of the frozen target: the model that is sped up stays the same.

With inputs "state+token" it reads the target's state of each verified token and the token behind it, then its own states
in their place, and no layer of the target runs while drafting (the family of EAGLE). With inputs "state" the target runs
up to the exit for each drafted token, and verification goes on from there (the family of LayerSkip).

Sources: Li et al., EAGLE, arXiv 2401.15077; Elhoushi et al., LayerSkip, arXiv 2404.16710, section 5.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from pathlib import Path
from typing import final

import torch

from ..core import Context, Step
from ..models.adapter_file import read_adapter
from ..models.adapter_runner import AdapterRunner
from ..models.plan import LayerPlan
from ..models.pool import Pool
from ..models.request import Rows
from ..models.sequence import Sequence, shared_prefix
from .base import DRAFTERS, Drafter, DrafterFactory, Parts
from .chain import next_step
from .vocabulary import first_ranked


@final
class AheadDraft(Drafter):
    """Inputs "state+token": the adapter's row i stands for token i + 1 and reads the target's state of token i."""

    def __init__(self, target: Sequence, pool: Pool, exit_layer: int, identity: str = "") -> None:
        self.taps = frozenset({exit_layer})
        self.identity = identity
        self._target, self._pool, self._exit = target, pool, exit_layer
        self._last = pool.runner.num_layers
        self._own: Sequence | None = None

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        ids = context.ids[1:]
        if not ids:
            return  # a text of one token has no verified state to begin from
        if self._own is None:
            self._own = self._pool.take(ids)
        taps = frozenset({self._last})
        known = shared_prefix(self._own.ids, ids[:-1])
        rows = await self._own.sync(ids, taps, self._target.states(self._exit)[known:])
        drafted: list[int] = []
        while True:
            step = next_step(rows, context, drafted)
            yield step
            drafted.append(step.tokens[0])
            rows = await self._own.forward(drafted[-1:], taps=taps, states=rows.taps[self._last][-1:])

    async def read(self, ids: Series[int], given: int) -> Rows:
        """Each row reads the adapter's own state before it and sees target states before that, as the second of a draft."""
        known, new = ids[1 : given - 1], ids[given - 1 :]
        await self._target.sync(ids[: given - 1], self.taps)
        rest = await self._target.forward(new, taps=self.taps, want=0)
        states = torch.cat([self._target.states(self._exit), rest.taps[self._exit]])
        self._target.drop()
        if self._own is None:
            self._own = self._pool.take(known)
        held = shared_prefix(self._own.ids, known[:-1])
        taps = frozenset({self._last})
        await self._own.sync(known, taps, states[held : len(known)])
        first = await self._own.forward(new, taps=taps, states=states[len(known) : -1])
        if len(new) == 1:
            return first
        parents = range(len(new) - 1)
        rows = await self._own.forward(new[1:], parents, taps=taps, states=first.taps[self._last][:-1])
        self._own.drop()
        return Rows(torch.cat([first.logits[:1], rows.logits]), torch.cat([first.hidden[:1], rows.hidden]))

    def close(self) -> None:
        if self._own is not None:
            self._pool.give(self._own)


@final
class ExitDraft(Drafter):
    """Inputs "state": the adapter's row i stands for token i and reads the target's state of it."""

    def __init__(self, target: Sequence, pool: Pool, exit_layer: int, identity: str = "") -> None:
        self.taps = frozenset({exit_layer})
        self.identity = identity
        self._target, self._pool, self._exit = target, pool, exit_layer
        self._plan = LayerPlan.early_exit(exit_layer, target.runner.num_layers)
        self._own: Sequence | None = None

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        if self._own is None:
            self._own = self._pool.take(context.ids)
        states = await self._states(context.ids[-1])
        known = shared_prefix(self._own.ids, context.ids[:-1])
        rows = await self._own.sync(context.ids, states=torch.cat([self._target.states(self._exit)[known:], states]))
        drafted: list[int] = []
        while True:
            step = next_step(rows, context, drafted)
            yield step
            drafted.append(step.tokens[0])
            rows = await self._own.forward(drafted[-1:], states=await self._states(drafted[-1]))

    async def read(self, ids: Series[int], given: int) -> Rows:
        known, new = ids[: given - 1], ids[given - 1 :]
        await self._target.sync(known, self.taps)
        exits = await self._target.forward(new, plan=self._plan, taps=self.taps, want=0)
        if self._own is None:
            self._own = self._pool.take(known)
        held = shared_prefix(self._own.ids, known[:-1])
        await self._own.sync(known, states=self._target.states(self._exit)[held:])
        self._target.drop()
        return await self._own.forward(new, states=exits.taps[self._exit])

    async def _states(self, token: int) -> torch.Tensor:
        """The target's state of its next row at the exit, [1, D]."""
        rows = await self._target.forward([token], plan=self._plan, taps=self.taps, want=0)
        return rows.taps[self._exit]

    def close(self) -> None:
        if self._own is not None:
            self._pool.give(self._own)


KINDS = {"state": ExitDraft, "state+token": AheadDraft}


@DRAFTERS("exit_adapter", source="Li et al., arXiv 2401.15077; Elhoushi et al., arXiv 2404.16710")
def build(parts: Parts, *, adapter: str, vocabulary: int = 0, weights: str = "") -> DrafterFactory:
    """A block trained on the target's states drafts: a directory of `forerun train exit-adapter`; vocabulary 0 is whole."""
    file = read_adapter(Path(adapter))
    file.check_base(parts.identity)
    runner = parts.target.runner
    file.shape.check(runner.num_layers)
    head = ""
    if vocabulary:
        head = runner.add_head(first_ranked(file.ranking.tolist(), vocabulary, runner.vocab_size))
    pool = parts.open_pool(AdapterRunner(file, runner, head, weights))
    kind, exit_layer = KINDS[file.shape.inputs], file.shape.exit_layer
    identity = f"exit_adapter {file.digest} at layer {exit_layer}"
    if vocabulary:
        identity += f", {vocabulary} tokens"
    return lambda target: kind(target, pool, exit_layer, identity)
