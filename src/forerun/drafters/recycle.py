"""Token recycling: the model's own best next tokens, of rows that verification computed anyway, are drafted again.

They are kept for the last token, and for the last two, for all requests of an engine. What follows the text is a tree of
them: first the nodes that are likeliest to be accepted, as counted by rank, share and depth, while they are worth the price
of their rows.

Source: Luo et al., Token Recycling, arXiv 2408.08696; pairs of tokens, and prices, are forerun's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import final

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.values import ROOT, Context, Round, Step
from .base import DRAFTERS, DrafterFactory, Parts
from .branching.tree_growth import RankedSiblings, best_first, goes_on
from .branching.tree_prices import pricing
from .recycling.best_tokens import MOST, best_tokens
from .recycling.next_tokens import NO_TOKEN, NextTokens, NextTokenTable
from .recycling.rank_acceptance import RankAcceptance

MOST_REJECTED = 8  # rows of rejected tokens that are read in a round


@dataclass(frozen=True, slots=True)
class Leaf:
    """A node of the draft that may be continued, by its last two tokens; confidence: that all up to it are accepted."""

    node: int
    before: int
    token: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Shared:
    """Of the requests of an engine. new_table: for a request of which nothing may be remembered."""

    table: NextTokenTable
    acceptance: RankAcceptance
    new_table: Callable[[], NextTokenTable]


@final
class Recycle(Drafter):
    """n: at most so many children a node; prices as tree_growth.best_first has them."""

    copies = True

    def __init__(self, shared: Shared, n: int, prices: Series[float]) -> None:
        self._shared = shared
        self._own: NextTokenTable | None = None
        self._n = n
        self._prices = prices

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        ids = context.ids
        level = [Leaf(ROOT, _before(ids, len(ids)), ids[-1], 1.0)]
        nodes, depth, reached = 0, 0, 1.0
        while level:
            offers = [RankedSiblings(self._ranking(leaf, depth), leaf.confidence) for leaf in level]
            taken = best_first(offers, nodes, self._prices)
            if not taken:
                return
            likely = sum(child.confidence for _, child in taken)
            yield Step(
                tuple(child.token for _, child in taken),
                tuple(level[index].node for index, _ in taken),
                (None,) * len(taken),
                confidence=min(likely / reached, 1.0),
            )
            nodes += len(taken)
            level = [
                Leaf(nodes - len(taken) + i, level[index].token, child.token, child.confidence)
                for i, (index, child) in enumerate(taken)
                if goes_on(child, nodes, self._prices, context.eos)
            ]
            depth, reached = depth + 1, likely

    def _ranking(self, leaf: Leaf, depth: int) -> list[tuple[int, float]]:
        kept = self._find(leaf.before, leaf.token)
        return self._shared.acceptance.ranking(kept, depth)[: self._n] if kept is not None else []

    def _find(self, before: int, token: int) -> NextTokens | None:
        found = self._shared.table.find(before, token)
        own = self._own.find(before, token) if self._own is not None else None
        return own if own is not None and (own.pair or found is None or not found.pair) else found

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        ids, path = context.ids, round.verdict.path
        for depth, place in enumerate(range(round.start, round.start + len(round.tokens))):
            kept = self._find(_before(ids, place), ids[place - 1])
            if kept is not None:
                self._shared.acceptance.learn(kept, depth, ids[place])
        if not context.remember and self._own is None:
            self._own = self._shared.new_table()
        table = self._shared.table if self._own is None else self._own
        rejected = [node for node in range(len(round.draft)) if node not in path][:MOST_REJECTED]
        nodes = [*rejected, ROOT, *path]  # the rows of the text itself come last, and stay
        tokens, parents = round.draft.tokens, round.draft.parents
        pending = ids[round.start - 1]
        for node, ranking in zip(nodes, best_tokens(rows, [node + 1 for node in nodes]), strict=True):
            if node == ROOT:
                table.put(_before(ids, round.start), pending, ranking)
            else:
                parent = parents[node]
                table.put(pending if parent == ROOT else tokens[parent], tokens[node], ranking)


def _before(ids: Series[int], place: int) -> int:
    """The token before the last one of ids[:place]."""
    return ids[place - 2] if place > 1 else NO_TOKEN


@DRAFTERS("recycle", source="Luo et al., Token Recycling, arXiv 2408.08696")
def build(
    parts: Parts,
    *,
    n: int = 8,
    pairs: int = 65_536,
    budget: int = 0,
    min_confidence: float = 0.15,
    costs: str = "",
) -> DrafterFactory:
    """Draft what the model itself found likely after the same tokens before, as a tree; costs no forward.

    At most n children a node, 1 for a chain; nodes that are likelier to be accepted come first, down to min_confidence, up
    to budget nodes (0: as many as can pay by the measured costs, those in the file `costs` or those kept for the machine;
    24 where there are none). What is kept takes 48 bytes for each token of the vocabulary and for each of `pairs` pairs; it
    serves later requests of the same engine only, which it makes faster and never changes.
    """
    if not 1 <= n <= MOST:
        raise ValueError(f"n must be 1 to {MOST} children a node, got {n}")
    if pairs < 0:
        raise ValueError(f"pairs must be at least 0, got {pairs}")
    sized = pricing(parts, budget, min_confidence, costs)
    vocabulary = parts.target.runner.vocab_size

    def new_table() -> NextTokenTable:
        return NextTokenTable(vocabulary, pairs)

    shared = Shared(new_table(), RankAcceptance(), new_table)
    return lambda target: Recycle(shared, n, sized.prices(target.runner.cost))
