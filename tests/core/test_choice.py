"""Who reads rows: where a chooser gives nothing, torch's operations give the same as without one."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from forerun.core.choice import Chooser
from forerun.core.law import Filtered, Law, PointMass
from forerun.core.sampling import greedy_tokens, law
from forerun.core.values import Sampling

ROW = torch.tensor([0.0, 3.0, 1.0, 2.0])
WARM = Sampling(temperature=1.0, top_k=2)


@final
class Silent(Chooser):
    """Leaves every row to others."""

    def best(self, rows: Tensor) -> tuple[list[float], list[int]] | None:
        return None

    def filtered(self, row: Tensor, sampling: Sampling) -> Law | None:
        return None


@final
class Fixed(Chooser):
    def best(self, rows: Tensor) -> tuple[list[float], list[int]] | None:
        return [9.0] * len(rows), [2] * len(rows)

    def filtered(self, row: Tensor, sampling: Sampling) -> Law | None:
        return Filtered([0], [1.0])


def test_what_a_chooser_leaves_is_read_as_without_one() -> None:
    assert greedy_tokens(ROW[None], Silent()) == greedy_tokens(ROW[None])
    with_it, without = law(ROW, WARM, chooser=Silent()), law(ROW, WARM)
    assert [with_it.probability(token) for token in range(4)] == [without.probability(token) for token in range(4)]


def test_what_a_chooser_reads_is_taken() -> None:
    assert greedy_tokens(ROW[None], Fixed()) == [2]
    greedy = law(ROW, Sampling(), chooser=Fixed())
    assert isinstance(greedy, PointMass)
    assert greedy.token == 2
    assert law(ROW, WARM, chooser=Fixed()).probability(0) == 1


def test_rows_with_a_history_are_never_given_to_a_chooser() -> None:
    own = law(ROW, Sampling(temperature=1.0, repetition_penalty=2.0), [1], 1, Fixed())
    assert own.probability(0) < 1
