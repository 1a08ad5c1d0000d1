"""A tree of drafts: several continuations at once; the target follows the one that it would have written.

Any drafter that gives laws can be branched. Each level is one of its forwards, for all nodes that continue. At temperature 0
a node's children are its row's best tokens; above, they are drawn without replacement (or chosen too, on request). The
cumulative confidence decides where the tree is broad and where it is deep, within a budget of nodes.

Sources: Miao et al., SpecInfer, arXiv 2305.09781; Yang et al., multi-candidate speculative decoding, arXiv 2401.06706 and
Jeon et al., recursive speculative decoding, arXiv 2402.14160 (siblings without replacement); Li et al., EAGLE-2, arXiv
2406.16858 (trees by confidence).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.law import Law
from ..core.values import Context, DraftCounts, Step, UnusedWork
from ..errors import UnsupportedOption
from .base import DRAFTERS, DrafterFactory, Parts
from .branches import Branch, Branched, branching, read_row
from .branching.tree_growth import DrawnSiblings, RankedSiblings, SiblingSource, best_first, goes_on
from .branching.tree_prices import pricing

SIBLINGS = ("drawn", "chosen")


@dataclass(frozen=True, slots=True)
class Shape:
    """At most n children a node; prices as tree_growth.best_first has them; drawn: children are, above temperature 0."""

    n: int
    prices: tuple[float, ...]
    drawn: bool


@final
class Tree(Branched):
    def __init__(self, inner: Drafter, shape: Shape) -> None:
        super().__init__(inner)
        self._shape = shape

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self.unused = UnusedWork()
        level, nodes, known = [Branch()], 0, 0
        rows = await self._begin(context)
        while rows is not None:
            offers = self._offers(rows, level, context)
            counts = DraftCounts(forwards=1, invalid=sum(not one.ranked for one in offers))
            taken = best_first(offers, nodes, self._shape.prices)
            if not taken:
                self.unused = UnusedWork(counts, rows.seconds)
                return
            origins = [index for index, _ in taken]
            yield Step(
                tuple(child.token for _, child in taken),
                tuple(level[index].node for index in origins),
                tuple(child.law for _, child in taken),
                rows.logits[origins],
                rows.hidden[origins],
                rows.seconds,
                counts=counts,
            )
            nodes += len(taken)
            further = [
                (nodes - len(taken) + i, level[index], child)
                for i, (index, child) in enumerate(taken)
                if goes_on(child, nodes, self._shape.prices, context.eos)
            ]
            if not further:
                return
            rows = await self._extend(
                [child.token for _, _, child in further], [parent.row for _, parent, _ in further]
            )
            level = [
                Branch(node, known + i, (*parent.path, child.token), child.confidence)
                for i, (node, parent, child) in enumerate(further)
            ]
            known += len(level)

    def _offers(self, rows: Rows, level: Series[Branch], context: Context) -> list[SiblingSource]:
        start, drawn = len(context.ids), 0

        def propose(law: Law) -> int:
            nonlocal drawn
            drawn += 1
            return context.chance.propose(law, start + len(level[0].path), start, drawn - 1)

        def offers(row: Tensor, branch: Branch) -> SiblingSource:
            law, ranking = read_row(row, branch.path, context, self._shape.n)
            if law is None or not self._shape.drawn:
                return RankedSiblings(ranking, branch.confidence)
            return DrawnSiblings(law, ranking, branch.confidence, propose)

        return [offers(rows.logits[i], branch) for i, branch in enumerate(level)]


@DRAFTERS("tree", source="Miao et al., arXiv 2305.09781; Jeon et al., arXiv 2402.14160; Li et al., arXiv 2406.16858")
def build(
    parts: Parts,
    *,
    of: str,
    n: int = 4,
    budget: int = 0,
    min_confidence: float = 0.05,
    siblings: str = "drawn",
    costs: str = "",
    **options: Any,
) -> DrafterFactory:
    """Another drafter with a law (of, with its own options), branched: a tree of at most n children a node.

    Nodes that are likelier to be accepted come first, down to min_confidence, up to budget nodes (0: as many as can pay by
    the measured costs, those in the file `costs` or those kept for the machine; 24 where there are none). siblings: above
    temperature 0 they are drawn, without replacement, or chosen.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1 child a node, got {n}")
    if siblings not in SIBLINGS:
        raise UnsupportedOption(f"siblings must be one of {', '.join(SIBLINGS)}, got {siblings!r}")
    sized = pricing(parts, budget, min_confidence, costs)
    make = branching(parts, "tree", of, options)
    return lambda target: Tree(make(target), Shape(n, sized.prices(target.runner.cost), siblings == "drawn"))
