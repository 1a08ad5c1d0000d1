"""Products of float rows with float32 and bfloat16 weights, and a matrix's own rows back from its blocks."""

from __future__ import annotations

from ctypes import byref

import numpy as np
import pytest
import torch
from torch import Tensor

from forerun.errors import UnsupportedOption
from forerun.models.lean.native.dense import TYPES, Dense

from .kernels import LEVELS, kernels, needs_kernels

pytestmark = needs_kernels
EXACT = 1e-6  # relative to float64
ROUNDED = 5e-3  # by rows in bfloat16
SHAPES = ((16, 32), (97, 64), (40, 97), (7, 5), (160, 250))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(rows: int, columns: int, dtype: torch.dtype, level: str = "") -> tuple[Dense, np.ndarray]:
    """A matrix, and in float64 what it holds."""
    weight = random(rows, columns, seed=rows + columns).to(dtype)
    return Dense(kernels(level), weight), weight.double().numpy()


def product(matrix: Dense, x: Tensor, terms: int = 2, threads: int = 1) -> np.ndarray:
    y = torch.empty(len(x), matrix.rows)
    function = matrix._library.functions.forerun_linear
    assert function(byref(matrix.view), x.data_ptr(), len(x), y.data_ptr(), terms, threads) == 0
    return y.double().numpy()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_products_are_those_of_float64_to_the_last_bits_of_float32(level: str, dtype: torch.dtype) -> None:
    for rows, columns in SHAPES:
        matrix, exact = made(rows, columns, dtype, level)
        for n in (1, 2, 3, 5, 6, 7, 13, 64):
            x = random(n, columns, seed=n)
            wanted = x.double().numpy() @ exact.T
            error = np.sqrt(np.mean((product(matrix, x) - wanted) ** 2) / np.mean(wanted**2))
            assert error < EXACT, (rows, columns, n)


@pytest.mark.parametrize("level", LEVELS)
def test_one_term_may_round_rows_to_bfloat16_where_the_weights_are(level: str) -> None:
    for rows, columns in SHAPES:
        matrix, exact = made(rows, columns, torch.bfloat16, level)
        x = random(9, columns)
        wanted, found = x.double().numpy() @ exact.T, product(matrix, x, 1)
        assert np.sqrt(np.mean((found - wanted) ** 2) / np.mean(wanted**2)) < ROUNDED
        rounded = x.bfloat16().float()
        assert np.allclose(product(matrix, rounded, 1), product(matrix, rounded, 2), atol=1e-4)
        whole, _ = made(rows, columns, torch.float32, level)
        assert np.array_equal(product(whole, x, 1), product(whole, x, 2))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("terms", [1, 2])
def test_a_row_has_the_same_bits_beside_any_others_and_on_any_threads(
    level: str, dtype: torch.dtype, terms: int
) -> None:
    matrix, _ = made(97, 50, dtype, level)
    x = random(64, 50)
    alone = np.concatenate([product(matrix, row[None].contiguous(), terms) for row in x])
    for n in (*range(1, 14), 31, 64):
        for threads in (1, 2, 3):
            assert np.array_equal(product(matrix, x[:n].contiguous(), terms, threads), alone[:n])


@pytest.mark.parametrize("terms", [1, 2])
def test_what_is_not_finite_stays_in_its_row(terms: int) -> None:
    for dtype in TYPES:
        matrix, exact = made(40, 97, dtype)
        x = random(5, 97)
        x[1, 3], x[3, 96] = torch.nan, torch.inf
        found = product(matrix, x, terms)
        assert np.isnan(found[1]).all()
        assert not np.isfinite(found[3]).any()
        assert np.allclose(found[[0, 2, 4]], x[[0, 2, 4]].double().numpy() @ exact.T, atol=0.2)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_matrix_comes_back_as_it_was(dtype: torch.dtype) -> None:
    for rows, columns in SHAPES:
        matrix, exact = made(rows, columns, dtype)
        assert np.array_equal(matrix.dense().double().numpy(), exact)
        assert matrix.dense().dtype == matrix.dtype == dtype
        some = torch.tensor([rows - 1, 0, 3])
        assert np.array_equal(matrix.embed(some).double().numpy(), exact[some])
        assert matrix.embed(some).dtype == torch.float32
        assert np.array_equal(matrix.picked(some).dense().double().numpy(), exact[some])


def test_it_takes_as_much_memory_as_its_weights_in_whole_blocks() -> None:
    assert made(48, 64, torch.float32)[0].nbytes == 48 * 64 * 4
    assert made(33, 65, torch.bfloat16)[0].nbytes == 48 * 66 * 2


def test_a_bias_is_added_and_no_rows_give_none() -> None:
    weight, bias, x = random(40, 96), random(40, seed=4), random(3, 96)
    plain, biased = Dense(kernels(), weight), Dense(kernels(), weight, bias.bfloat16())
    assert torch.equal(biased(x), plain(x) + bias.bfloat16())
    assert plain(x[:0]).shape == (0, 40)


def test_any_float_type_and_stride_is_taken_and_another_width_is_refused() -> None:
    matrix = Dense(kernels(), random(16, 32))
    x = random(4, 64).bfloat16()[:, ::2]
    assert torch.equal(matrix(x), matrix(x.float().contiguous()))
    with pytest.raises(ValueError, match="with 32 columns was given rows of shape"):
        matrix(random(2, 33))


def test_other_types_of_weights_are_refused() -> None:
    with pytest.raises(UnsupportedOption, match=r"not of torch\.float16; set FORERUN_NATIVE=off"):
        Dense(kernels(), random(4, 4).half())
