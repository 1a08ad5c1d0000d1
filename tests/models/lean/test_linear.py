"""Matrix products of the lean decoder: each way of holding a matrix gives x W^T + bias."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.models.lean.linear import BLOCK, DENSE_ROWS_INT4, Int4, Int8, Plain, make_head, make_linear, make_table
from forerun.models.lean.weights import quantise_int4, quantise_int8

FORMS = ("", "float32", "bf16", "int8", "int4")
ALLOWED = {"": 1e-5, "float32": 1e-5, "bf16": 2e-2, "int8": 3e-2, "int4": 2e-1}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def off(actual: Tensor, expected: Tensor) -> float:
    return float((actual.float() - expected).norm() / expected.norm())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 5, DENSE_ROWS_INT4 + 3])
@pytest.mark.parametrize("biased", [False, True])
def test_every_form_gives_the_product(form: str, rows: int, biased: bool) -> None:
    weight, x = normal(96, 64), normal(rows, 64, seed=1)
    bias = normal(96, seed=2) if biased else None
    linear = make_linear([weight], form, bias)
    assert linear.rows == 96
    assert off(linear(x), F.linear(x, weight, bias)) < ALLOWED[form]


@pytest.mark.parametrize("form", FORMS)
def test_matrices_under_each_other_are_one_product_in_the_given_order(form: str) -> None:
    parts, x = [normal(32, 64), normal(64, 64, seed=1)], normal(3, 64, seed=2)
    order = torch.arange(95, -1, -1)
    expected = F.linear(x, torch.cat(parts)[order])
    assert off(make_linear(parts, form, order=order)(x), expected) < ALLOWED[form]


@pytest.mark.parametrize("rows", [BLOCK, BLOCK + 1, 2 * BLOCK - 1, 7])
def test_4_bit_matrices_of_any_number_of_rows_work(rows: int) -> None:
    grid, x = quantise_int4(normal(rows, 64)), normal(4, 64, seed=1).bfloat16().float()
    linear = Int4(grid)
    assert linear(x).shape == (4, rows)
    assert off(linear(x), F.linear(x, grid.dense())) < 2e-2


@pytest.mark.parametrize("count", [2, DENSE_ROWS_INT4 + 1])
def test_few_and_many_rows_go_through_the_same_weights(count: int) -> None:
    x = normal(count, 64, seed=1).bfloat16().float()
    four, eight = quantise_int4(normal(128, 64)), quantise_int8(normal(128, 64))
    assert off(Int4(four)(x), F.linear(x, four.dense())) < 2e-2
    assert off(Int8(eight)(x), F.linear(x, eight.dense())) < 2e-2


def test_dense_undoes_the_packing() -> None:
    grid = quantise_int4(normal(100, 64))
    assert off(Int4(grid).dense().float(), grid.dense()) < 1e-2
    weight = normal(96, 64)
    for form in ("float32", "bf16", "int8"):
        assert off(make_linear([weight], form).dense().float(), weight) < ALLOWED[form]


@pytest.mark.parametrize("form", FORMS)
def test_a_table_gives_rows_and_products(form: str) -> None:
    weight, ids = normal(96, 64), torch.tensor([3, 95, 3])
    table = make_table(weight, form)
    assert table.embed(ids).dtype == torch.float32
    assert off(table.embed(ids), weight[ids]) < 3e-2
    assert off(table(normal(2, 64, seed=1)), F.linear(normal(2, 64, seed=1), weight)) < 3e-2


def test_the_head_is_held_in_8_bits_where_the_layers_are_in_4() -> None:
    assert isinstance(make_head(normal(96, 64), "int4"), Int8)
    assert isinstance(make_table(normal(96, 64), "int4"), Int8)


def test_small_weights_take_less_memory() -> None:
    sizes = [make_linear([normal(128, 64)], form).nbytes for form in ("float32", "bf16", "int8", "int4")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 4 * 128 * 64
    assert sizes[3] < 0.4 * sizes[1]


def test_float32_rows_are_the_same_alone_and_among_others() -> None:
    linear, x = make_linear([normal(96, 64)], "float32"), normal(9, 64, seed=1)
    for rows in range(1, 9):
        assert torch.allclose(linear(x[:rows])[0], linear(x)[0], atol=1e-5)


def test_plain_products_work_where_no_special_kernel_does() -> None:
    weight, x = normal(8, 5), normal(2, 5, seed=1)
    assert torch.allclose(Plain(weight)(x), F.linear(x, weight))


@pytest.mark.parametrize("form", FORMS)
def test_picked_rows_give_what_the_matrix_gives_there(form: str) -> None:
    weight, x, rows = normal(96, 64), normal(3, 64, seed=1), torch.tensor([5, 95, 0])
    for whole in (make_linear([weight], form), make_head(weight, form), make_table(weight, form)):
        some = whole.picked(rows)
        assert some.rows == 3
        assert some.nbytes < whole.nbytes / 8
        assert off(some(x), whole(x)[:, rows].float()) < 1e-2


def test_an_int8_matrix_stays_one_where_rows_are_picked() -> None:
    assert isinstance(make_head(normal(96, 64), "int8").picked(torch.tensor([1, 2])), Int8)
