"""Small weights: grids and how values get onto them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from forerun.errors import UnsupportedOption
from forerun.models.lean.weights import (
    GROUP,
    Int4Grid,
    check_weights,
    dense,
    middle_of,
    quantise_int4,
    quantise_int8,
    stack_int4,
)


def matrix(rows: int = 6, columns: int = 2 * GROUP, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def test_int8_is_off_by_at_most_half_a_step() -> None:
    weight = matrix()
    grid = quantise_int8(weight)
    assert grid.codes.dtype == torch.int8
    assert bool(((grid.dense() - weight).abs() <= grid.scales[:, None] * 0.51 + weight.abs() / 256).all())


def test_int4_is_off_by_at_most_half_a_step() -> None:
    weight = matrix()
    grid = quantise_int4(weight)
    assert int(grid.codes.max()) <= 15
    step = grid.scales.repeat_interleave(GROUP, 1)
    assert bool(((grid.dense() - weight).abs() <= step * 0.6).all())


def test_values_that_are_on_the_grid_come_back() -> None:
    codes = torch.randint(16, (4, GROUP), generator=torch.Generator().manual_seed(1))
    codes[:, 0], codes[:, 1] = 0, 15
    weight = codes * 0.5 - 4.0
    assert torch.equal(quantise_int4(weight).dense(), weight)
    again = quantise_int4(quantise_int4(matrix()).dense())
    assert torch.allclose(again.dense(), quantise_int4(matrix()).dense(), atol=0.02)


def test_scales_are_what_bfloat16_holds() -> None:
    for scales in (quantise_int8(matrix()).scales, quantise_int4(matrix()).scales):
        assert torch.equal(scales, scales.bfloat16().float())
    grid = quantise_int4(matrix())
    middle = middle_of(grid.scales, grid.minima)
    assert torch.equal(middle, middle.bfloat16().float())


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_constant_row_stays_what_it_is(value: float) -> None:
    weight = torch.full((2, GROUP), value)
    assert torch.allclose(quantise_int4(weight).dense(), weight, atol=0.02)
    assert torch.allclose(quantise_int8(weight).dense(), weight, atol=0.02)


def test_columns_must_come_in_whole_groups() -> None:
    with pytest.raises(UnsupportedOption, match="groups of 32 columns and a matrix has 33; take int8 or bf16"):
        quantise_int4(matrix(columns=GROUP + 1))


def test_stacking_equals_quantising_the_whole() -> None:
    top, bottom = matrix(3), matrix(5, seed=1)
    stacked = stack_int4([top, quantise_int4(bottom)])
    whole = quantise_int4(torch.cat([top, bottom]))
    assert torch.equal(stacked.codes, whole.codes)
    assert torch.equal(stacked.dense(), whole.dense())


def test_rows_are_taken_with_their_scales() -> None:
    grid = quantise_int4(matrix())
    order = torch.tensor([4, 0, 2])
    assert isinstance(grid, Int4Grid)
    assert torch.equal(grid.take(order).dense(), grid.dense()[order])


def test_dense_gives_floats_of_either() -> None:
    weight = matrix()
    assert dense(weight) is weight
    assert torch.equal(dense(quantise_int4(weight)), quantise_int4(weight).dense())


def test_unknown_names_are_refused() -> None:
    check_weights("")
    check_weights("int4")
    with pytest.raises(UnsupportedOption, match="unknown weights 'int2'; known: float32, bf16, int8, int4"):
        check_weights("int2")
