"""Ways to draft and to stop, for the exact gate: forerun's own on tables, and trees of every kind of node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from fractions import Fraction
from typing import final

from forerun.core.drafter import Drafter
from forerun.core.law import Law
from forerun.core.policy import LengthPolicy
from forerun.core.values import ROOT, Context, Round, Step
from forerun.drafters.draft_model import ModelDraft
from forerun.drafters.exit_adapter import ExitStateDraft, StateTokenDraft
from forerun.drafters.graph import GraphDraft, Limits
from forerun.drafters.self_draft import SelfDraft
from forerun.drafters.tree import Shape, Tree
from forerun.models.packed.plan import FULL
from forerun.policies.base import confidence

from .exact import FractionLaw, Table, TableSequence

Child = tuple[int, Law | None]
Siblings = Callable[[FractionLaw, Callable[[Law], int]], list[Child]]


def chain(target: TableSequence) -> Drafter:
    return SelfDraft(target, FULL)  # type: ignore[arg-type]


class Shelf:
    """In the place of a SequencePool."""

    identity = None

    def __init__(self, table: Table) -> None:
        self._table = table
        self.runner = TableSequence(table)

    def acquire(self, ids: Sequence[int]) -> TableSequence:
        return TableSequence(self._table)


def other_model(table: Table) -> Callable[[TableSequence], Drafter]:
    return lambda target: ModelDraft(Shelf(table), table.vocabulary)  # type: ignore[arg-type]


def ahead(table: Table) -> Callable[[TableSequence], Drafter]:
    return lambda target: StateTokenDraft(target, Shelf(table), 2)  # type: ignore[arg-type]


def after_an_exit(table: Table) -> Callable[[TableSequence], Drafter]:
    return lambda target: ExitStateDraft(target, Shelf(table), 1)  # type: ignore[arg-type]


def branched(
    inner: Callable[[TableSequence], Drafter], n: int = 2, least: float = 0.0, budget: int = 9, drawn: bool = True
) -> Callable[[TableSequence], Drafter]:
    """forerun's own tree of another drafter."""
    return lambda target: Tree(inner(target), Shape(n, (least,) * budget, drawn))


def merged(
    inner: Callable[[TableSequence], Drafter],
    m: int = 0,
    leaf: float = 0.0,
    budget: int = 9,
    verification: str = "exact",
) -> Callable[[TableSequence], Drafter]:
    """forerun's own graph of another drafter."""
    limits = Limits(n=2, m=m, sibling=0.0, leaf=leaf, prices=(0.0,) * budget)
    return lambda target: GraphDraft(inner(target), limits, verification)


@final
class Written(Drafter):
    """Under the last nodes of a level, as many as parents says, the children that `siblings` makes from the law there."""

    def __init__(self, table: Table, siblings: Siblings, parents: int) -> None:
        self._table = table
        self._siblings = siblings
        self._parents = parents

    async def draft(self, context: Context) -> AsyncIterator[Step]:
        start = len(context.ids)
        level: list[tuple[int, tuple[int, ...]]] = [(ROOT, tuple(context.ids))]
        nodes = 0
        while True:
            drawn = 0

            def propose(law: Law, position: int = len(level[0][1])) -> int:
                nonlocal drawn
                drawn += 1
                return context.chance.propose(law, position, start, drawn - 1)

            children: list[tuple[int, Child, tuple[int, ...]]] = []
            for node, text in level[-self._parents :]:
                law = self._table.law(text)
                assert isinstance(law, FractionLaw)
                children += [(node, child, (*text, child[0])) for child in self._siblings(law, propose)]
            yield Step(
                tuple(child[0] for _, child, _ in children),
                tuple(node for node, _, _ in children),
                tuple(child[1] for _, child, _ in children),
            )
            level = [(nodes + i, text) for i, (_, _, text) in enumerate(children)]
            nodes += len(children)


def tree(table: Table, siblings: Siblings, parents: int = 1) -> Callable[[TableSequence], Drafter]:
    return lambda target: Written(table, siblings, parents)


def best(law: FractionLaw, rank: int = 0) -> int:
    return sorted(range(len(law.probs)), key=lambda token: (-law.probs[token], token))[rank]


def without(law: FractionLaw, token: int) -> FractionLaw | None:
    rest = [Fraction(0) if other == token else p for other, p in enumerate(law.probs)]
    return FractionLaw(rest) if any(rest) else None


def two_best(law: FractionLaw, propose: Callable[[Law], int]) -> list[Child]:
    return [(best(law), None), (best(law, 1), None)]


def chosen_twice(law: FractionLaw, propose: Callable[[Law], int]) -> list[Child]:
    return [(best(law), None), (best(law), None), (best(law, 1), None)]


def one_drawn(law: FractionLaw, propose: Callable[[Law], int]) -> list[Child]:
    return [(propose(law), law)]


def with_replacement(law: FractionLaw, propose: Callable[[Law], int]) -> list[Child]:
    return [(propose(law), law), (propose(law), law)]


def without_replacement(law: FractionLaw, propose: Callable[[Law], int]) -> list[Child]:
    children: list[Child] = []
    rest: FractionLaw | None = law
    for _ in range(2):
        if rest is not None:
            token = propose(rest)
            children.append((token, rest))
            rest = without(rest, token)
    return children


def drawn_then_chosen(law: FractionLaw, propose: Callable[[Law], int]) -> list[Child]:
    return [(propose(law), law), (best(law), None)]


def chosen_then_drawn(law: FractionLaw, propose: Callable[[Law], int]) -> list[Child]:
    return [(best(law, 1), None), (propose(law), law)]


def drawn_from_two_laws(law: FractionLaw, propose: Callable[[Law], int]) -> list[Child]:
    other = FractionLaw(reversed(law.probs))
    return [(propose(law), law), (propose(other), other)]


@final
class Never(LengthPolicy):
    def should_stop(self, steps: Sequence[Step]) -> bool:
        return True


@final
class Learnt(LengthPolicy):
    """Keeps the token that it stops after; what makes it stop moves with what earlier rounds drafted and lost."""

    def __init__(self) -> None:
        self.bar = Fraction(1, 3)
        self.wary = False

    def should_stop(self, steps: Sequence[Step]) -> bool:
        if self.wary and steps:
            return True
        return len(steps) == 3 or (bool(steps) and confidence(steps[-1]) < self.bar)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self.bar = Fraction(1, 2) if len(round.verdict.path) < len(steps) else Fraction(1, 4)
        self.wary = bool(steps) and steps[-1].tokens[-1] == 0


@final
class SkipsAfterZero(LengthPolicy):
    """Drafts nothing in the round after one whose last drafted token was 0."""

    def __init__(self, depth: int = 2) -> None:
        self.depth = depth
        self.rest = False

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return self.rest or len(steps) == self.depth

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self.rest = bool(steps) and steps[-1].tokens[-1] == 0
