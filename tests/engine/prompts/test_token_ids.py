"""Ids are whole numbers, in whatever holds them."""

from __future__ import annotations

import re
from array import array
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from forerun.engine.prompts.token_ids import all_zero, ids_of, is_id, listed, mask_of

HUGE = 2**70


@pytest.mark.parametrize(
    "row",
    [
        [3, 1],
        (3, 1),
        range(3, 0, -2),
        array("q", [3, 1]),
        [np.int64(3), np.uint8(1)],
        [torch.tensor(3), 1],
        [np.array(3), 1],
        np.array([3, 1], dtype=np.uint64),
        np.array([3, 1], dtype=object),
        torch.tensor([3, 1], dtype=torch.int32),
    ],
)
def test_whole_numbers_become_ints(row: Any) -> None:
    ids = ids_of(row)

    assert ids == [3, 1]
    assert {type(token) for token in ids} == {int}


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ([1, 2.0], "2.0 at place 1"),
        ([True], "True at place 0"),
        ([np.True_], "True at place 0"),
        ([np.float32(2)], "2.0 at place 0"),
        ([1, "2"], "'2' at place 1"),
        ([1, None], "None at place 1"),
        ([1, [2]], "[2] at place 1"),
        ([1, b"2"], "b'2' at place 1"),
        ([Decimal(2)], "Decimal('2') at place 0"),
        (np.array([1.0]), "1.0 at place 0"),
        (torch.tensor([1.5]), "1.5 at place 0"),
        (torch.tensor([True]), "True at place 0"),
        ([1, "\ud800"], r"'\ud800' at place 1"),
    ],
)
def test_anything_else_is_named_with_its_place(row: Any, value: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"token ids are whole numbers, got {value}")):
        ids_of(row)


@pytest.mark.parametrize("row", [3, None, {1, 2}, torch.tensor(3)])
def test_a_row_is_a_list(row: Any) -> None:
    with pytest.raises(ValueError, match="a row of token ids is a list of whole numbers"):
        ids_of(row)


def test_ids_of_any_size_are_left_to_the_vocabulary() -> None:
    assert ids_of([-1, HUGE]) == [-1, HUGE]


@pytest.mark.parametrize("value", [0, 1.5, True, Decimal(1), np.int8(1), np.float64(1), torch.tensor(1), np.array(1)])
def test_a_number_is_meant_as_an_id(value: Any) -> None:
    assert is_id(value)


@pytest.mark.parametrize("value", ["1", np.str_("a"), b"1", np.bytes_(b"1"), None, [1], {}, torch.tensor([1])])
def test_text_and_lists_are_not(value: Any) -> None:
    assert not is_id(value)


def test_a_mask_has_places() -> None:
    assert mask_of(torch.tensor([[1, 0]])) == [[1, 0]]
    assert mask_of((True, False)) == (True, False)
    with pytest.raises(ValueError, match="an attention mask has the shape of its ids, got 1 in the place of a row"):
        mask_of(1)


def test_zeros_are_found_at_any_depth() -> None:
    assert all_zero([[0, 0], torch.zeros(2)])
    assert all_zero(np.zeros((2, 2)))
    assert not all_zero([[0, 1]])
    assert not all_zero("0")


def test_only_tensors_and_arrays_are_listed() -> None:
    assert listed(torch.tensor([[1]])) == [[1]]
    assert listed(np.array(["a"])) == ["a"]
    assert listed((1,)) == (1,)
