"""Drafts under a constraint: without the chosen tokens that are forbidden, and without what follows those.

A forbidden token has probability 0, so leaving it out changes no law. A token that was drawn stays: leaving it out because
of what it is would bias the output. forerun's own drafters draw from masked laws, which hold no forbidden token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from .constraint import Constraint
from .values import ROOT, Step


@final
class PermittedSteps:
    """The steps of one draft. ended: nothing can follow any node of the last one."""

    def __init__(self, constraint: Constraint) -> None:
        self.ended = False
        self._constraint = constraint
        self._paths: list[tuple[int, ...]] = []  # by the drafter's number of a node
        self._places: list[int | None] = []  # the number that it has in the draft, None if it was left out
        self._count = 0

    def of(self, step: Step) -> Step | None:
        """What is left of the drafter's next step, None for nothing."""
        kept = [index for index in range(len(step.tokens)) if self._keeps(step, index)]
        self.ended = all(self._constraint.completes(self._paths[index - len(step.tokens)]) for index in kept)
        if len(kept) == len(step.tokens) and self._count == len(self._places):
            return step
        if not kept:
            return None
        return replace(
            step,
            tokens=tuple(step.tokens[index] for index in kept),
            parents=tuple(self._place(step.parents[index]) for index in kept),
            laws=tuple(step.laws[index] for index in kept),
            logits=None if step.logits is None else step.logits[kept],
            hidden=None if step.hidden is None else step.hidden[kept],
        )

    def _keeps(self, step: Step, index: int) -> bool:
        token, parent = step.tokens[index], step.parents[index]
        above = () if parent == ROOT else self._paths[parent]
        follows = parent == ROOT or self._places[parent] is not None
        keeps = follows and (step.laws[index] is not None or self._constraint.permits(above, token))
        self._paths.append((*above, token))
        self._places.append(self._count if keeps else None)
        self._count += keeps
        return keeps

    def _place(self, node: int) -> int:
        place = ROOT if node == ROOT else self._places[node]
        assert place is not None
        return place
