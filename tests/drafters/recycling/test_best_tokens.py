from __future__ import annotations

from typing import final

import pytest
import torch
from torch import Tensor

from forerun.core.choice import Chooser
from forerun.core.forward import Rows
from forerun.core.law import Filtered, Law
from forerun.core.values import Sampling
from forerun.drafters.recycling.best_tokens import MOST, best_tokens


@final
class Told(Chooser):
    """Gives the law that it was told, and counts how often it was asked."""

    def __init__(self, law: Law | None) -> None:
        self.law = law
        self.asked = 0

    def best(self, rows: Tensor) -> None:
        return None

    def filtered(self, row: Tensor, sampling: Sampling) -> Law | None:
        assert (sampling.temperature, sampling.top_k) == (1.0, MOST)
        self.asked += 1
        return self.law


def rows(*logits: list[float], chooser: Chooser | None = None) -> Rows:
    table = torch.tensor(logits)
    return Rows(table, table, chooser=chooser)


def test_the_best_tokens_of_the_wanted_rows_come_in_their_order() -> None:
    many = [float(token * 7 % 20) for token in range(20)]
    first, second = best_tokens(rows(many, [0.0] * 20, [-x for x in many]), [2, 0])
    assert [token for token, _ in first] == sorted(range(20), key=lambda token: many[token])[:MOST]
    assert [token for token, _ in second] == sorted(range(20), key=lambda token: -many[token])[:MOST]
    assert sum(share for _, share in second) == pytest.approx(1)
    assert second[0][1] / second[1][1] == pytest.approx(torch.tensor(1.0).exp().item())


def test_a_small_vocabulary_has_fewer() -> None:
    assert [token for token, _ in best_tokens(rows([0.0, 2.0, 1.0]), [0])[0]] == [1, 2, 0]


def test_a_token_that_cannot_come_and_a_row_without_a_softmax_are_left_out() -> None:
    infinite = float("inf")
    found = best_tokens(rows([0.0, -infinite, 1.0], [0.0, float("nan"), 1.0], [0.0, infinite, 1.0]), [0, 1, 2])
    assert [token for token, _ in found[0]] == [2, 0]
    assert found[1:] == [[], []]


def test_rows_that_come_with_a_chooser_are_read_by_it_and_equals_beyond_the_most_are_cut() -> None:
    told = Told(Filtered(list(range(10)), [0.05, 0.45, *[0.0625] * 8]))
    found = best_tokens(rows([0.0] * 10, [0.0] * 10, chooser=told), [0, 1])
    assert [token for token, _ in found[0]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (found[1], told.asked) == (found[0], 2)


def test_where_a_chooser_leaves_a_row_to_torch_it_is_read_all_the_same() -> None:
    assert [token for token, _ in best_tokens(rows([0.0, 2.0, 1.0], chooser=Told(None)), [0])[0]] == [1, 2, 0]
