"""Which children a level of a tree gets: the most confident ones of all its nodes first, while they are worth their price.

Chosen children are a row's best tokens, and any of them may be left out. Drawn children are drawn without replacement, each
from the residual of the row's law. Whether one is drawn must not depend on which token it is. So the worth of a drawn child
is known before it is drawn, and every drawn child stays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import final

from ...core.law import Law, PointMass

Ranking = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Child:
    """A token to follow a node. law: what it was drawn from, None if chosen. confidence: how likely the path up to it is
    accepted, by the draft's own laws.
    """

    token: int
    law: Law | None
    confidence: float


class SiblingSource(ABC):
    """The children that a node can still get, the most confident first. worth: the next one's confidence, 0 for none.

    ranked: whether there was any at first; a row that is no law has none.
    """

    worth: float

    def __init__(self, ranking: Ranking) -> None:
        self.ranked = bool(ranking)

    @abstractmethod
    def take(self) -> Child:
        """The next child; worth must be above 0."""


@final
class RankedSiblings(SiblingSource):
    """The best tokens of a row, with their probabilities, under a node of this confidence."""

    def __init__(self, ranking: Ranking, confidence: float) -> None:
        super().__init__(ranking)
        self._left = list(reversed(ranking))
        self._confidence = confidence
        self._weigh()

    def take(self) -> Child:
        child = Child(self._left.pop()[0], None, self.worth)
        self._weigh()
        return child

    def _weigh(self) -> None:
        self.worth = self._confidence * self._left[-1][1] if self._left else 0.0


@final
class DrawnSiblings(SiblingSource):
    """As many tokens as the ranking has, drawn from the law one after the other, without replacement.

    A token drawn from a law close to the target's is accepted more often than the law's best token is right. So the first
    one's confidence is half-way between the best token's probability and 1. Each further one's is the same for the residual
    law, given that those before it are rejected.
    """

    def __init__(self, law: Law, ranking: Ranking, confidence: float, propose: Callable[[Law], int]) -> None:
        super().__init__(ranking)
        self._law = law
        self._propose = propose
        self._reached = confidence
        self._ranking = list(ranking)
        self._left = len(self._ranking)
        self._mass = 1.0
        self._weigh()

    def take(self) -> Child:
        token = self._propose(self._law)
        child = Child(token, self._law, self.worth)
        self._mass -= self._mass * float(self._law.probability(token))
        self._law = self._law.minus(PointMass(token))
        self._ranking = [(other, p) for other, p in self._ranking if other != token]
        self._reached -= self.worth
        self._left -= 1
        self._weigh()
        return child

    def _weigh(self) -> None:
        if not self._left or not self._ranking:
            self.worth = 0.0
            return
        best = float(self._ranking[0][1])
        self.worth = self._reached * (1 + best / max(self._mass, best)) / 2


def affordable(worth: float, node: int, prices: Sequence[float]) -> bool:
    """Whether a draft may have a node of this number: there is a price for it, and the node is worth it."""
    return node < len(prices) and worth >= prices[node]


def goes_on(child: Child, nodes: int, prices: Sequence[float], eos: Collection[int]) -> bool:
    """Whether a node of a draft of so many may have children: none is worth more than it, or follows the end of a text."""
    return affordable(child.confidence, nodes, prices) and child.token not in eos


def best_first(offers: Sequence[SiblingSource], nodes: int, prices: Sequence[float]) -> list[tuple[int, Child]]:
    """Children with the index of the offers that they are from, in the order in which they were taken.

    nodes: how many the draft has. The i-th node of a draft is taken if it is worth prices[i]; none is after the last price.
    """
    waiting = [(-one.worth, index) for index, one in enumerate(offers) if one.worth > 0]
    heapify(waiting)
    taken: list[tuple[int, Child]] = []
    while waiting and affordable(-waiting[0][0], nodes + len(taken), prices):
        index = waiting[0][1]
        taken.append((index, offers[index].take()))
        if offers[index].worth > 0:
            heapreplace(waiting, (-offers[index].worth, index))
        else:
            heappop(waiting)
    return taken
