"""A small trained block drafts from the hidden states of the frozen target.

With inputs "state+token" it reads the target's state of each verified token and the token after it. For drafted tokens it
reads its own states instead, and no layer of the target runs while drafting (the family of EAGLE). With inputs "state" the
target runs up to the exit for each drafted token, and verification continues from there (the family of LayerSkip).

Sources: Li et al., EAGLE, arXiv 2401.15077; Elhoushi et al., LayerSkip, arXiv 2404.16710, section 5.
"""

from __future__ import annotations

from collections.abc import Sequence as Series
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.values import Context
from ..models.files.adapter import read_adapter
from ..models.lean.adapter_runner import AdapterRunner
from ..models.packed.plan import LayerPlan
from ..models.packed.pool import SequencePool
from ..models.packed.request import Chain
from ..models.packed.sequence import Sequence, shared_prefix
from .base import DRAFTERS, DrafterFactory, Parts
from .pooled import Pooled
from .vocabulary import first_ranked


@final
class StateTokenDraft(Pooled):
    """Inputs "state+token": the adapter's row i stands for token i + 1 and reads the target's state of token i."""

    def __init__(self, target: Sequence, pool: SequencePool, exit_layer: int, identity: str = "") -> None:
        super().__init__(pool)
        self.taps = frozenset({exit_layer})
        self.identity = identity
        self._target, self._exit = target, exit_layer
        self._last = pool.runner.num_layers
        self._own_taps = frozenset({self._last})
        self._states: list[Tensor] = []  # the adapter's own, of the pending token and each drafted one, [1, D] each

    def unread(self, ids: Series[int]) -> int:
        own = ids[1:]
        return len(own) - shared_prefix(self._taken(own).ids, own) if own else 0

    async def begin(self, context: Context, chain: Chain | None = None) -> Rows | None:
        ids = context.ids[1:]
        if not ids:
            return None  # a text of one token has no verified state to begin from
        own = self._taken(ids)
        known = shared_prefix(own.ids, ids[:-1])
        rows = await own.sync(ids, self._own_taps, self._target.states(self._exit)[known:], chain)
        self._states = [*rows.taps[self._last][-max(len(rows.tokens), 1) :].split(1)]
        return rows

    async def extend(self, tokens: Series[int], parents: Series[int], chain: Chain | None = None) -> Rows | None:
        assert self._own is not None
        before = [self._states[parent + 1] for parent in parents]
        states = before[0] if len(before) == 1 else torch.cat(before)
        rows = await self._own.forward(tokens, parents, taps=self._own_taps, states=states, chain=chain)
        states = rows.taps[self._last]
        self._states += states.split(1) if len(states) > 1 else [states]
        return rows

    async def go_on(self, context: Context, drafted: Series[int], ahead: int, guesses: Series[int] = ()) -> Rows | None:
        # each further row reads the adapter's state before it, as one of extend's does
        chain = Chain(ahead, self._pool.runner.vocab_size) if ahead else None
        return await (self.extend(drafted[-1:], [len(drafted) - 2], chain) if drafted else self.begin(context, chain))

    async def read(self, ids: Series[int], given: int) -> Rows:
        """Each row reads the adapter's own state before it and sees target states before that, as the second of a draft."""
        known, new = ids[1 : given - 1], ids[given - 1 :]
        await self._target.sync(ids[: given - 1], self.taps)
        rest = await self._target.forward(new, taps=self.taps, want=0)
        states = torch.cat([self._target.states(self._exit), rest.taps[self._exit]])
        self._target.drop()
        own = self._taken(known)
        held = shared_prefix(own.ids, known[:-1])
        taps = self._own_taps
        await own.sync(known, taps, states[held : len(known)])
        first = await own.forward(new, taps=taps, states=states[len(known) : -1])
        if len(new) == 1:
            return first
        parents = range(len(new) - 1)
        rows = await own.forward(new[1:], parents, taps=taps, states=first.taps[self._last][:-1])
        own.drop()
        return Rows(torch.cat([first.logits[:1], rows.logits]), torch.cat([first.hidden[:1], rows.hidden]))


@final
class ExitStateDraft(Pooled):
    """Inputs "state": the adapter's row i stands for token i and reads the target's state of it."""

    def __init__(self, target: Sequence, pool: SequencePool, exit_layer: int, identity: str = "") -> None:
        super().__init__(pool)
        self.taps = frozenset({exit_layer})
        self.identity = identity
        self._target, self._exit = target, exit_layer
        self._plan = LayerPlan.early_exit(exit_layer, target.runner.num_layers)

    def unread(self, ids: Series[int]) -> int:
        return len(ids) - shared_prefix(self._taken(ids).ids, ids)

    async def begin(self, context: Context) -> Rows | None:
        own = self._taken(context.ids)
        exits = await self._target.forward(context.ids[-1:], plan=self._plan, taps=self.taps, want=0)
        known = shared_prefix(own.ids, context.ids[:-1])
        states = torch.cat([self._target.states(self._exit)[known:], exits.taps[self._exit]])
        return await own.sync(context.ids, states=states)

    async def extend(self, tokens: Series[int], parents: Series[int]) -> Rows | None:
        assert self._own is not None
        # the pending token is the target's first scratch row
        own = [parent + 1 for parent in parents]
        exits = await self._target.forward(tokens, own, plan=self._plan, taps=self.taps, want=0)
        return await self._own.forward(tokens, parents, states=exits.taps[self._exit])

    async def read(self, ids: Series[int], given: int) -> Rows:
        known, new = ids[: given - 1], ids[given - 1 :]
        await self._target.sync(known, self.taps)
        exits = await self._target.forward(new, plan=self._plan, taps=self.taps, want=0)
        own = self._taken(known)
        held = shared_prefix(own.ids, known[:-1])
        await own.sync(known, states=self._target.states(self._exit)[held:])
        self._target.drop()
        return await own.forward(new, states=exits.taps[self._exit])


KINDS = {"state": ExitStateDraft, "state+token": StateTokenDraft}


@DRAFTERS("exit_adapter", source="Li et al., arXiv 2401.15077; Elhoushi et al., arXiv 2404.16710")
def build(parts: Parts, *, adapter: str, vocabulary: int = 0, weights: str = "") -> DrafterFactory:
    """A block trained on the target's states. adapter: a directory of `forerun train exit-adapter`; vocabulary: 0 is all."""
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

    def drafter(target: Sequence) -> Drafter:
        if kind is ExitStateDraft:
            runner.check_plan(LayerPlan.early_exit(exit_layer, runner.num_layers))
        return kind(target, pool, exit_layer, identity)

    return drafter
