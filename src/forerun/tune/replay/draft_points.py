"""A trace's drafts as the steps that the loop could have collected there, each with its time under given costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ...core.values import DraftCounts, Step
from ...traces.branches import Branches
from ...traces.read import Position
from .round_costs import RoundCosts


@dataclass(frozen=True, slots=True, eq=False)
class DraftPoint:
    """What can be drafted after a known token. path: the nodes that agree with the answer, one per step from the first on.

    left: the work of asking for one more step, which gives none; left_seconds: its time.
    """

    steps: tuple[Step, ...] = ()
    path: tuple[int, ...] = ()
    left: DraftCounts = field(default_factory=DraftCounts)
    left_seconds: float = 0.0


def chain(position: Position, costs: RoundCosts, draft_ms: Callable[[float], float]) -> DraftPoint:
    """A chain, whose tokens were chosen. draft_ms: milliseconds of so many forwards of one row, as costs have it there."""
    steps: list[Step] = []
    spent, paid = 0.0, 0
    for node, (token, signals) in enumerate(zip(position.drafted, position.signals, strict=True)):
        hidden = None if position.hidden is None else position.hidden[node : node + 1]
        counts = DraftCounts(forwards=int(signals is not None))
        step = Step((token,), (node - 1,), (None,), None, hidden, 0.0, signals, counts)
        paid += costs.pays(step)
        total = max(draft_ms(paid) / 1e3, spent)
        steps.append(replace(step, forward_seconds=total - spent))
        spent = total
    return DraftPoint(tuple(steps), tuple(range(position.agreed)))


def branched(branches: Branches | None, costs: RoundCosts, draft_ms: Callable[[float], float]) -> DraftPoint:
    """A tree, whose nodes were chosen; None where there was no room for one."""
    if branches is None:
        return DraftPoint()
    steps: list[Step] = []
    spent, paid = 0.0, 0.0
    for level in branches.levels:
        paid += costs.forwards(level.forwards)
        total = max(draft_ms(paid) / 1e3, spent)
        counts = DraftCounts(len(level.forwards), level.merged, level.saved)
        laws = (None,) * len(level.tokens)
        steps.append(Step(level.tokens, level.parents, laws, None, None, total - spent, level.signals, counts))
        spent = total
    left = max(draft_ms(paid + costs.forwards(branches.left)) / 1e3 - spent, 0.0)
    return DraftPoint(tuple(steps), branches.path, DraftCounts(len(branches.left)), left)
