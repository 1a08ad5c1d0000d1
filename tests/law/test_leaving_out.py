"""The exact gate for rules that leave chosen steps out for what they are; drawn ones stay, whatever a rule says."""

from collections.abc import Sequence
from typing import final

import pytest

from forerun.core.law import Law
from forerun.core.policy import LengthPolicy
from forerun.core.values import Round, Step

from . import drafts
from .exact import Scenario, Table, truth, written

pytestmark = pytest.mark.usefixtures("tables")
PAIR = Table("p"), Table("q")


@final
class LeavesOut(LengthPolicy):
    """Leaves out a step that holds a token which the text has just shown to be wrong, or that begins with 0."""

    def __init__(self, left: list[int]) -> None:
        self.wrong = 0
        self._left = left

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) == 2

    def leaves_out(self, steps: Sequence[Step]) -> bool:
        leaves = steps[-1].tokens[0] in (0, self.wrong)
        self._left.append(leaves)
        return leaves

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self.wrong = round.verdict.tokens[-1]


def one_chosen(law: drafts.FractionLaw, propose: object) -> list[tuple[int, Law | None]]:
    return [(drafts.best(law), None)]


def scenario(siblings: drafts.Siblings, left: list[int], length: int = 3) -> Scenario:
    target, draft = PAIR
    return Scenario(target, drafts.tree(draft, siblings), lambda: LeavesOut(left), draft, length=length)


@pytest.mark.parametrize("siblings", [one_chosen, drafts.two_best])
def test_leaving_out_chosen_steps_for_what_they_are_leaves_the_law_as_it_is(siblings: drafts.Siblings) -> None:
    left: list[int] = []
    asked = scenario(siblings, left)
    assert written(asked) == truth(asked)
    assert {*left} == {False, True}


@pytest.mark.parametrize("siblings", [drafts.one_drawn, drafts.drawn_then_chosen])
def test_steps_with_a_drawn_token_are_never_left_out(siblings: drafts.Siblings) -> None:
    left: list[int] = []
    asked = scenario(siblings, left)
    assert written(asked) == truth(asked)
    assert left == []
