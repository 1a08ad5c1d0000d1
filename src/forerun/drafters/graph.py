"""A graph of drafts: if several continuations reach the same tokens, the drafter computes what follows only once.

Continuations are expanded breadth first with the best tokens of each row. If the last m + 1 tokens of one occur elsewhere in
the draft, it links to that node and shares everything drafted after it (graph_nodes). The target needs a position for every
token, so it verifies the graph unrolled to a tree, level by level, each copy at its own depth. So merging saves rows of the
drafter, not of the target. All nodes are chosen and verified like those of any tree, so merging and pruning don't change the
text.

Source: Gong et al., graph-structured speculative decoding, arXiv 2407.16207.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.law import Law
from ..core.values import ROOT, Context, DraftCounts, Step, UnusedWork
from ..core.verify import Rule
from ..errors import UnsupportedOption
from ..models.packed.sequence import Sequence
from .base import DRAFTERS, DrafterFactory, Parts
from .branches import Branched, branching, read_row
from .branching.graph_lossy import stochastic
from .branching.graph_nodes import Graph
from .branching.tree_growth import Child, RankedSiblings, best_first, goes_on
from .branching.tree_prices import pricing

RULES: dict[str, Rule | None] = {"exact": None, "stochastic-lossy": stochastic}


@dataclass(frozen=True, slots=True)
class Limits:
    """n tokens of a row at most, none below `sibling` times the best one's probability; none after one below `leaf`.

    prices as tree_growth.best_first has them; m as Graph has it.
    """

    n: int
    m: int
    sibling: float
    leaf: float
    prices: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy of a graph's node in the unrolled tree, with its number there."""

    node: int = ROOT
    source: int = ROOT
    confidence: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The drafter's row after a graph's node: its best tokens, and its law."""

    row: int
    best: dict[int, float]
    law: Law | None
    logits: Tensor
    hidden: Tensor


def gathered(rows: Series[Tensor]) -> Tensor:
    """Single rows as one tensor [n, width]."""
    return torch.stack(list(rows))


@final
class GraphDraft(Branched):
    def __init__(self, inner: Drafter, limits: Limits, verification: str = "exact") -> None:
        super().__init__(inner)
        self.rule = RULES[verification]
        self._limits = limits

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self.unused = UnusedWork()
        rows = await self._begin(context)
        if rows is None:
            return
        graph, known = Graph(context.ids, self._limits.m), {ROOT: self._read(rows, 0, ROOT, (), context)}
        level, nodes, seconds = [_Copy()], 0, rows.seconds
        counts = DraftCounts(forwards=1, invalid=int(not known[ROOT].best))
        while True:
            offers = [RankedSiblings(list(known[copy.source].best.items()), copy.confidence) for copy in level]
            taken = best_first(offers, nodes, self._limits.prices)
            if not taken:
                self.unused = UnusedWork(replace(counts, saved=0), seconds)
                return
            parents = [level[index] for index, _ in taken]
            children = [child for _, child in taken]
            placed = [graph.follow(parent.source, child.token) for parent, child in zip(parents, children, strict=True)]
            counts += DraftCounts(merged=sum(not new for _, new in placed))
            yield self._step(parents, children, [known[parent.source] for parent in parents], seconds, counts)
            level = [
                _Copy(nodes + i, source, child.confidence)
                for i, ((source, _), parent, child) in enumerate(zip(placed, parents, children, strict=True))
                if self._goes_on(child, known[parent.source], nodes + len(taken), context)
            ]
            nodes += len(taken)
            asked = list(dict.fromkeys(copy.source for copy in level if copy.source not in known))
            seconds, counts = 0.0, DraftCounts(forwards=int(bool(asked)), saved=len(level) - len(asked))
            if not asked:
                continue
            tokens = [graph.path(node)[-1] for node in asked]
            rows = await self._extend(tokens, [known[graph.parent(node)].row for node in asked])
            if rows is None:
                return
            seconds, first = rows.seconds, len(known) - 1
            for i, node in enumerate(asked):
                known[node] = self._read(rows, i, first + i, graph.path(node), context)
                counts += DraftCounts(invalid=int(not known[node].best))

    def _read(self, rows: Rows, i: int, row: int, path: tuple[int, ...], context: Context) -> _Known:
        law, ranking = read_row(rows.logits[i], path, context, self._limits.n)
        least = self._limits.sibling * ranking[0][1] if ranking else 0.0
        best = {token: p for token, p in ranking if p >= least}
        return _Known(row, best, law, rows.logits[i], rows.hidden[i])

    def _step(
        self,
        parents: Series[_Copy],
        children: Series[Child],
        sources: Series[_Known],
        seconds: float,
        counts: DraftCounts,
    ) -> Step:
        """A level. sources: the rows that its nodes come from."""
        exact = self.rule is None
        return Step(
            tuple(child.token for child in children),
            tuple(parent.node for parent in parents),
            tuple(None if exact else known.law for known in sources),
            gathered([known.logits for known in sources]),
            gathered([known.hidden for known in sources]),
            seconds,
            counts=counts,
        )

    def _goes_on(self, child: Child, source: _Known, nodes: int, context: Context) -> bool:
        """Whether a node may have children."""
        likely = source.best[child.token] >= self._limits.leaf
        return likely and goes_on(child, nodes, self._limits.prices, context.eos)


@DRAFTERS("graph", source="Gong et al., arXiv 2407.16207")
def build(
    parts: Parts,
    *,
    of: str,
    n: int = 4,
    m: int = 1,
    sibling: float = 0.3,
    leaf: float = 0.3,
    budget: int = 0,
    min_confidence: float = 0.05,
    costs: str = "",
    verification: str = "exact",
    **options: Any,
) -> DrafterFactory:
    """Another drafter with a law (of, with its own options), branched, and merged where m + 1 tokens recur (-1: a tree).

    A node has at most n children, each at least `sibling` as probable as the best; one less probable than leaf has none.
    budget, min_confidence and costs as for tree. verification: exact, or the paper's stochastic-lossy, which changes the
    distribution of sampled text.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1 child a node, got {n}")
    if m < -1:
        raise ValueError(f"m must be at least -1 (-1 never merges), got {m}")
    for name, value in (("sibling", sibling), ("leaf", leaf)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be in [0, 1], got {value}")
    if verification not in RULES:
        raise UnsupportedOption(f"verification must be one of {', '.join(RULES)}, got {verification!r}")
    sized = pricing(parts, budget, min_confidence, costs)
    make = branching(parts, "graph", of, options)

    def drafter(target: Sequence) -> Drafter:
        limits = Limits(n, m, sibling, leaf, sized.prices(target.runner.cost))
        return GraphDraft(make(target), limits, verification)

    return drafter
