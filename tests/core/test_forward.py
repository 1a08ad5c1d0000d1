"""Rows of a forward: tensors that nobody reads are never made."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from forerun.core.forward import Later, Rows


def test_a_tensor_is_made_once_when_it_is_read() -> None:
    made: list[str] = []

    def of(name: str) -> Later:
        def make() -> Tensor:
            made.append(name)
            return torch.ones(2, 3)

        return Later(make)

    rows = Rows(of("logits"), of("hidden"))
    assert made == []
    assert rows.logits is rows.logits
    assert made == ["logits"]
    assert rows.hidden.shape == (2, 3)
    assert made == ["logits", "hidden"]


def test_tensors_that_are_there_are_given_as_they_are() -> None:
    logits, hidden = torch.zeros(1, 4), torch.zeros(1, 2)
    rows = Rows(logits, hidden)
    assert rows.logits is logits
    assert rows.hidden is hidden
    other = torch.ones(1, 3)
    assert replace(rows, given_logits=other).logits is other
