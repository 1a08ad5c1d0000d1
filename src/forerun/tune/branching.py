"""Trees and graphs in a tuning run: as drafters, and as drafts that are estimated from one reading of an answer.

The reading gives the drafter's ranking after each of the answer's own tokens, so the path that the target follows is known,
as for a chain. The rankings after other tokens aren't known. To count the nodes of a draft, and so its cost, the ranking
after the answer's token of the same depth is used instead. Merging is ignored, so a graph costs a little less than
estimated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.cost import Cost
from ..core.drafter import Drafter
from ..core.values import ROOT, Signals
from ..drafters.base import DrafterFactory
from ..drafters.branching.tree_growth import RankedSiblings, Ranking, affordable, best_first
from ..drafters.branching.tree_prices import Pricing
from ..drafters.graph import GraphDraft, Limits
from ..drafters.tree import Shape, Tree
from ..models.packed.sequence import Sequence as Target
from ..traces.branches import Branches, Level, branches_of
from .candidates import GRAPH, DrafterConfig


def drafter_of(config: DrafterConfig, make: DrafterFactory) -> DrafterFactory:
    """The tree or graph of a config on the drafter that make gives, as the registered one with these options."""
    options = config.options

    def branched(target: Target) -> Drafter:
        prices = prices_of(config, target.runner.cost)
        if config.method == GRAPH:
            limits = Limits(options["n"], options["m"], options["sibling"], options["leaf"], prices)
            return GraphDraft(make(target), limits)
        return Tree(make(target), Shape(options["n"], prices, drawn=True))

    return branched


def prices_of(config: DrafterConfig, measured: Cost | None) -> tuple[float, ...]:
    """The price of each node; measured: the runner's cost, where one is kept."""
    budget = int(config.options["budget"])
    return Pricing(budget, config.options["min_confidence"], budget).prices(measured)


def grown(
    rankings: Sequence[Ranking], follow: Sequence[int], config: DrafterConfig, prices: Sequence[float]
) -> Branches:
    """The draft where an answer goes on with `follow`; rankings[i] is what is ranked after i tokens of that."""
    levels: list[Level] = []
    level = [(ROOT, 1.0)]
    nodes = 0
    for ranking in (_offered(one, config.options) for one in rankings):
        rows = (len(level),)
        taken = best_first([RankedSiblings(ranking, confidence) for _, confidence in level], nodes, prices)
        if not taken:
            return branches_of(levels, rows, follow)
        sure = max(child.confidence for _, child in taken)
        levels.append(
            Level(
                tuple(child.token for _, child in taken),
                tuple(level[index][0] for index, _ in taken),
                Signals(sure, sure, 1 - sure, (sure,)),
                rows,
            )
        )
        nodes += len(taken)
        least, known = config.options.get("leaf", 0.0), dict(ranking)
        level = [
            (nodes - len(taken) + i, child.confidence)
            for i, (_, child) in enumerate(taken)
            if affordable(child.confidence, nodes, prices) and known[child.token] >= least
        ]
        if not level:
            break
    return branches_of(levels, (), follow)


def _offered(ranking: Ranking, options: Mapping[str, Any]) -> Ranking:
    """The best n, and of a graph those that are not far below the best."""
    least = options.get("sibling", 0.0) * ranking[0][1] if ranking else 0.0
    return [(token, p) for token, p in ranking[: options["n"]] if p >= least]
