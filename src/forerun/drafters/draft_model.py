"""A smaller model drafts: classic speculation with two models.

Each round, the draft's sequence syncs to the emitted text, so it needn't be told about rejected tokens. Vocabularies are
compared by token strings; sizes may differ by padding. A token that the target doesn't have is never drafted, and for one
that the draft model doesn't have it reads another. A draft may have smaller weights than the target, and draft among
frequent tokens alone.

Sources: Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, final

import torch
import torch.nn.functional as F

from ..core.forward import Rows
from ..core.identity import Identity
from ..core.values import Context, Step
from ..errors import UnsupportedOption
from ..models.files.compact_draft import RANKING, read_compact
from ..models.files.draft import read_draft
from ..models.files.known_drafts import compact_directory
from ..models.lean.compact_runner import compact_runner
from ..models.packed.plan import FULL, LayerPlan
from ..models.packed.pool import SequencePool
from ..models.packed.request import Chain
from ..models.packed.sequence import shared_prefix
from .activations import drafted_in
from .base import DRAFTERS, DrafterFactory, Parts
from .chain import chained, choosing
from .pooled import Pooled
from .vocabulary import first_ranked

STAND_IN = 0  # for a token that the draft model doesn't have


@final
class ModelDraft(Pooled):
    """shared: the ids that both models have. width: how many the target has, where the draft model has fewer."""

    checks_guesses = True

    def __init__(
        self,
        pool: SequencePool,
        shared: int,
        told: str = "",
        width: int | None = None,
        draws: bool = True,
        reads: int = 0,
    ) -> None:
        super().__init__(pool)
        if pool.identity is not None:
            self.identity = f"draft_model of weights {pool.identity.weights}{told}"
        self._shared = shared
        self._width = width
        self._draws = draws
        self._widens = False
        self._reads = reads
        self._start = 0  # where in the text its sequence begins
        self._ends: list[
            int
        ] = []  # of the pending token and each drafted one: how long the text from there up to it is

    def draft(self, context: Context) -> AsyncGenerator[Step]:
        return chained(self, context if self._draws else choosing(context))

    def unread(self, ids: Series[int]) -> int:
        window = self._window(ids)
        return len(window) - shared_prefix(self._taken(window).ids, window) if self._fits([len(window)]) else 0

    async def begin(self, context: Context, chain: Chain | None = None) -> Rows | None:
        ids = self._window(context.ids)
        self._ends = [len(ids)]
        if not self._fits(self._ends):
            return None
        # processors may count on the scores of all the target's tokens
        self._widens = context.sampling.calls_processors
        rows = await self._taken(ids).sync(ids, chain=chain)
        self._ends += range(len(ids) + 1, len(ids) + len(rows.tokens))
        return self._shown(rows)

    async def extend(self, tokens: Series[int], parents: Series[int], chain: Chain | None = None) -> Rows | None:
        assert self._own is not None
        ends = [self._ends[parent + 1] + 1 for parent in parents]
        if not self._fits(ends):
            return None
        self._ends += ends
        rows = await self._own.forward(tokens, parents, chain=chain)
        self._ends += range(ends[-1] + 1, ends[-1] + len(rows.tokens))
        return self._shown(rows)

    async def go_on(self, context: Context, drafted: Series[int], ahead: int, guesses: Series[int] = ()) -> Rows | None:
        known = tuple(takewhile(lambda token: token < self._shared, guesses))
        chain = Chain(ahead, self._shared, known) if ahead else None
        return await (self.extend(drafted[-1:], [len(drafted) - 2], chain) if drafted else self.begin(context, chain))

    def _fits(self, ends: Series[int]) -> bool:
        limit = self._pool.runner.max_length
        return limit is None or max(ends) <= limit

    def _window(self, ids: Series[int]) -> Series[int]:
        """The part of the text that its sequence holds: all of it, or at first the last tokens of what it has to read."""
        if self._own is None and self._reads:
            known = self._known(ids)
            if len(known) - shared_prefix(self._taken(known).ids, known) > self._reads:
                self._start = len(known) - self._reads
        return self._known(ids[self._start :])

    def _known(self, ids: Series[int]) -> Series[int]:
        """The text, with another token for each one that the draft model doesn't have. This can only affect acceptance."""
        if self._width is None:
            return ids
        size = self._pool.runner.vocab_size
        return [token if token < size else STAND_IN for token in ids]

    def _shown(self, rows: Rows) -> Rows:
        """The rows without the tokens that only the draft model has."""
        logits = rows.logits[:, : self._shared]
        if self._widens and self._width is not None:
            logits = F.pad(logits, (0, self._width - self._shared), value=-torch.inf)
        return replace(rows, given_logits=logits, best=())

    async def read(self, ids: Series[int], given: int) -> Rows:
        ids = self._known(ids)
        sequence = self._taken(ids)
        await sequence.sync(ids[: given - 1])
        return self._shown(await sequence.forward(ids[given - 1 :]))


@DRAFTERS("draft_model", source="Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318")
def build(
    parts: Parts,
    *,
    model: Any,
    vocabulary: int | None = None,
    weights: str = "",
    activations: int | None = None,
    draws: bool = True,
    reads: int = 0,
) -> DrafterFactory:
    """A smaller model with the target's tokenizer: a name, a path, a loaded model, or one of `forerun drafts`.

    weights: the draft's own format. activations: bits of the rows that its native products take. vocabulary: draft
    among this many frequent tokens, 0: all; a draft of `forerun train draft` has a default of its own. draws:
    draw the drafts of a sampled text, too; else the best tokens are drafted, and a seed gives plain decoding's text.
    reads: of a text that it doesn't know yet, the draft reads at most so many of its last tokens, 0: all. Fewer are read
    sooner and drafted from a little worse.
    """
    if reads < 0:
        raise UnsupportedOption(f"reads must be 0, for the whole text, or a number of tokens, got {reads}")
    compact = compact_directory(model)
    if compact is not None:
        return _compact(parts, compact, vocabulary, weights, activations, draws, reads)
    pool, strings = parts.load(model)
    runner = pool.runner
    shared = min(runner.vocab_size, parts.target.runner.vocab_size)
    if strings is not None and parts.vocabulary is not None:
        compare_vocabularies(parts.vocabulary, strings, shared, runner.name)
    trained = read_draft(model)
    size = vocabulary if vocabulary is not None else trained.vocabulary if trained is not None else 0
    partial = size not in (0, shared)
    head = ""
    if partial:
        ranking = [] if trained is None else [token for token in trained.ranking.tolist() if token < shared]
        head = runner.add_head(first_ranked(ranking, size, shared))
    if weights:
        runner.add_weights(weights)
    told = f", weights {weights}" if weights else ""
    plan = LayerPlan(weights=weights, head=head)
    return _factory(parts, pool, plan, activations, told, size if partial else 0, draws, reads)


def _compact(
    parts: Parts,
    directory: Path,
    vocabulary: int | None,
    weights: str,
    activations: int | None,
    draws: bool,
    reads: int,
) -> DrafterFactory:
    """A compact draft on its target's embeddings and head."""
    draft = read_compact(directory)
    facts = draft.facts
    if weights:
        raise UnsupportedOption(f"the draft {facts.name} holds weights of its own, {facts.weights}; leave weights out")
    facts.check_target(parts.identity)
    base = parts.target.runner
    runner = compact_runner(draft, base)
    size = facts.vocabulary if vocabulary is None else vocabulary
    partial = size not in (0, runner.vocab_size)
    head = ""
    if partial:
        tokens = first_ranked(draft.tensors[RANKING].tolist(), size, runner.vocab_size)
        head = runner.add_head(tokens, facts.weights if base.device.type == "cpu" else "")
    identity = Identity(
        parts.identity.family, facts.layers, parts.identity.hidden_size, runner.vocab_size, facts.digest
    )
    pool = parts.open_pool(runner, identity)
    return _factory(parts, pool, LayerPlan(head=head), activations, "", size if partial else 0, draws, reads)


def _factory(
    parts: Parts,
    pool: SequencePool,
    plan: LayerPlan,
    activations: int | None,
    told: str,
    size: int,
    draws: bool,
    reads: int,
) -> DrafterFactory:
    """Drafts under a plan, in these activations, among `size` tokens, 0: all. told: of the identity."""
    runner = pool.runner
    plan = drafted_in(runner, plan, activations)
    if plan != FULL:
        pool = parts.open_pool(runner, pool.identity, plan)
    told += (f", {size} tokens" if size else "") + (f", activations {plan.activations}" if plan.activations else "")
    shared, width = min(runner.vocab_size, parts.target.runner.vocab_size), parts.target.runner.vocab_size
    return lambda target: ModelDraft(pool, shared, told, width if runner.vocab_size < width else None, draws, reads)


def compare_vocabularies(target: dict[str, int], draft: dict[str, int], shared: int, name: str) -> None:
    """Raise UnsupportedOption if an id below `shared` stands for two different tokens."""
    by_id = {token_id: token for token, token_id in target.items() if token_id < shared}
    for token, token_id in draft.items():
        other = by_id.get(token_id, token)
        if token_id < shared and other != token:
            raise UnsupportedOption(
                f"draft model {name} has another tokenizer: id {token_id} is {token!r} there and {other!r} in the target; "
                "use a draft model of the target's family"
            )
