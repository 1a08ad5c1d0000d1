"""Products on packed weights against float64 on the same codes, and the way back from them."""

from __future__ import annotations

from ctypes import byref

import numpy as np
import pytest
import torch
from torch import Tensor

from forerun.errors import UnsupportedOption
from forerun.models.lean.native.matrix import Repacked
from forerun.models.lean.weights import Int4Grid, Int8Grid, middle_of, quantise_int4, quantise_int8

from .kernels import LEVELS, kernels, needs_kernels

pytestmark = needs_kernels
# relative to float64, by terms of 8 bits
TOLERANCE = {1: 2e-2, 2: 8e-5}
SHAPES = ((16, 32), (97, 64), (40, 96), (7, 32), (160, 256))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(bits: int, rows: int, columns: int) -> tuple[Int4Grid | Int8Grid, np.ndarray]:
    """A grid, and in float64 what it stands for."""
    weight = random(rows, columns, seed=rows + columns)
    if bits == 8:
        grid8 = quantise_int8(weight)
        return grid8, grid8.codes.double().numpy() * grid8.scales.double().numpy()[:, None]
    grid = quantise_int4(weight)
    codes = grid.codes.view(rows, -1, 32).double() - 8
    middle = middle_of(grid.scales, grid.minima).double()
    return grid, (codes * grid.scales.double()[..., None] + middle[..., None]).view(rows, columns).numpy()


def product(matrix: Repacked, x: Tensor, terms: int, threads: int = 1) -> np.ndarray:
    y = torch.empty(len(x), matrix.rows)
    function = matrix._library.functions.forerun_linear
    assert function(byref(matrix.view), x.data_ptr(), len(x), y.data_ptr(), terms, threads) == 0
    return y.double().numpy()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("terms", [1, 2])
def test_products_are_near_float64_on_the_same_codes(level: str, bits: int, terms: int) -> None:
    for rows, columns in SHAPES:
        grid, exact = made(bits, rows, columns)
        matrix = Repacked(kernels(level), grid)
        for n in (1, 2, 3, 5, 6, 7, 13):
            x = random(n, columns, seed=n)
            wanted = x.double().numpy() @ exact.T
            error = np.sqrt(np.mean((product(matrix, x, terms) - wanted) ** 2) / np.mean(wanted**2))
            assert error < TOLERANCE[terms], (rows, columns, n)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_has_the_same_bits_beside_any_others_and_on_any_threads(level: str, bits: int) -> None:
    grid, _ = made(bits, 97, 64)
    matrix = Repacked(kernels(level), grid)
    x = random(20, 64)
    for terms in (1, 2):
        alone = np.concatenate([product(matrix, row[None].contiguous(), terms) for row in x])
        for n in range(1, 21):
            for threads in (1, 2, 3):
                assert np.array_equal(product(matrix, x[:n].contiguous(), terms, threads), alone[:n])


@pytest.mark.parametrize("bits", [4, 8])
def test_every_instruction_set_gives_the_same_bits(bits: int) -> None:
    grid, _ = made(bits, 97, 64)
    x = random(20, 64) * random(20, 1, seed=1).exp()
    for terms in (1, 2):
        wanted = product(Repacked(kernels(LEVELS[0]), grid), x, terms)
        for level in LEVELS[1:]:
            assert np.array_equal(product(Repacked(kernels(level), grid), x, terms), wanted), level


def test_numbers_of_any_size_are_held() -> None:
    grid, exact = made(4, 32, 64)
    matrix = Repacked(kernels(), grid)
    for size in (0.0, 1e-30, 1e30):
        x = random(2, 64) * size
        wanted = x.double().numpy() @ exact.T
        assert np.allclose(product(matrix, x, 2), wanted, rtol=1e-2, atol=1e-3 * size)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_grid_comes_back_as_it_was(bits: int) -> None:
    grid, exact = made(bits, 97, 64)
    matrix = Repacked(kernels(), grid)
    assert torch.equal(matrix.grid().codes, grid.codes)
    assert np.allclose(matrix.dense().double().numpy(), exact, rtol=1e-6, atol=1e-6)
    some = torch.tensor([96, 0, 17])
    assert torch.equal(matrix.picked(some).dense(), matrix.dense()[some])


def test_an_embedding_gives_its_rows_and_four_bits_are_refused() -> None:
    grid, _ = made(8, 97, 64)
    ids = torch.tensor([96, 0, 17, 17])
    assert torch.equal(Repacked(kernels(), grid).embed(ids), grid.dense()[ids])
    with pytest.raises(UnsupportedOption, match="an embedding of 4 bits"):
        Repacked(kernels(), made(4, 16, 32)[0]).embed(ids)


def test_a_bias_is_added_and_no_rows_give_none() -> None:
    grid, _ = made(4, 40, 96)
    bias, x = random(40, seed=4), random(3, 96)
    plain, biased = Repacked(kernels(), grid), Repacked(kernels(), grid, bias)
    assert torch.equal(biased(x), plain(x) + bias)
    assert plain(x[:0]).shape == (0, 40)


def test_rows_of_another_width_and_odd_columns_are_refused() -> None:
    matrix = Repacked(kernels(), made(4, 16, 32)[0])
    with pytest.raises(ValueError, match="with 32 columns was given rows of shape"):
        matrix(random(2, 33))
    with pytest.raises(UnsupportedOption, match="groups of 32 columns and a matrix has 33; set FORERUN_NATIVE=off"):
        Repacked(kernels(), quantise_int8(random(4, 33)))


def test_any_float_type_and_stride_is_taken() -> None:
    matrix = Repacked(kernels(), made(4, 16, 32)[0])
    x = random(4, 64).bfloat16()[:, ::2]
    assert torch.equal(matrix(x), matrix(x.float().contiguous()))
