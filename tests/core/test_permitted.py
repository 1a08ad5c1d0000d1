"""What is left of drafts under a constraint: forbidden chosen tokens go, with what follows them; drawn ones stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import pytest
import torch
from torch import Tensor

from forerun.core.constraint import Constraint
from forerun.core.law import Categorical, Law
from forerun.core.permitted import PermittedSteps
from forerun.core.values import ROOT, Draft, Step

LAW = Categorical(torch.full((10,), 0.1))


@final
class Below(Constraint):
    """Each token is below the one before it; nothing follows 0."""

    def allowed(self, drafted: tuple[int, ...]) -> Tensor | None:
        return torch.arange(10) < (drafted[-1] if drafted else 10)

    def permits(self, drafted: tuple[int, ...], token: int) -> bool:
        return token < (drafted[-1] if drafted else 10)

    def completes(self, drafted: tuple[int, ...]) -> bool:
        return drafted[-1:] == (0,)

    def forced(self, room: int) -> tuple[int, ...]:
        return ()

    def emit(self, tokens: Sequence[int]) -> None:
        pass


@pytest.fixture
def permitted() -> PermittedSteps:
    return PermittedSteps(Below())


def step(tokens: Sequence[int], parents: Sequence[int], laws: Sequence[Law | None] = ()) -> Step:
    rows = torch.tensor(tokens, dtype=torch.float32)[:, None]
    return Step(tuple(tokens), tuple(parents), tuple(laws) or (None,) * len(tokens), rows, rows)


def test_a_step_that_is_permitted_is_the_same(permitted: PermittedSteps) -> None:
    first, second = step([5, 7], [ROOT, ROOT]), step([6], [1])
    assert permitted.of(first) is first
    assert permitted.of(second) is second


def test_a_forbidden_token_ends_a_chain(permitted: PermittedSteps) -> None:
    assert permitted.of(step([5], [ROOT])) is not None
    assert permitted.of(step([7], [0])) is None
    assert permitted.of(step([1], [1])) is None


def test_what_follows_a_forbidden_token_goes_and_the_other_nodes_are_numbered_again(permitted: PermittedSteps) -> None:
    steps = [step([9, 5, 8], [ROOT, ROOT, ROOT]), step([4, 6, 9, 2], [0, 1, 2, 2]), step([3, 3, 1], [3, 4, 6])]
    left = [one for one in map(permitted.of, steps) if one is not None]
    draft = Draft.of(left)
    assert draft.tokens == (9, 5, 8, 4, 2, 3, 1)
    assert draft.parents == (ROOT, ROOT, ROOT, 0, 2, 3, 4)
    assert left[1].logits is not None
    assert left[1].logits[:, 0].tolist() == [4, 2]
    assert left[1].hidden is not None
    assert left[1].hidden[:, 0].tolist() == [4, 2]


def test_a_drawn_token_stays_even_if_it_is_forbidden(permitted: PermittedSteps) -> None:
    drawn = step([5, 9, 7], [ROOT, 0, 0], [None, LAW, None])
    left = permitted.of(drawn)
    assert left is not None
    assert (left.tokens, left.parents, left.laws) == ((5, 9), (ROOT, 0), (None, LAW))


def test_a_drawn_token_goes_where_it_can_never_be_reached(permitted: PermittedSteps) -> None:
    left = permitted.of(step([5, 7, 3], [ROOT, 0, 1], [None, None, LAW]))
    assert left is not None
    assert left.tokens == (5,)


def test_a_draft_ends_where_all_of_a_step_completes_the_text(permitted: PermittedSteps) -> None:
    permitted.of(step([0, 3], [ROOT, ROOT]))
    assert not permitted.ended
    permitted.of(step([0], [1]))
    assert permitted.ended
