"""Products on packed weights against float64 on the same codes, and the way back from them."""

from __future__ import annotations

from ctypes import byref

import numpy as np
import pytest
import torch
from torch import Tensor

from forerun.errors import UnsupportedOption
from forerun.models.lean.native.matrix import Repacked, nearer_in_halves
from forerun.models.lean.weights import Int4Grid, Int8Grid, middle_of, quantise_int4, quantise_int8

from .kernels import LEVELS, kernels, needs_kernels

pytestmark = needs_kernels
# relative to float64, by terms of 8 bits
TOLERANCE = {1: 2e-2, 2: 8e-5}
FORMS = [(4, False), (4, True), (8, False)]
SHAPES = ((16, 32), (97, 64), (40, 96), (7, 32), (160, 256))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(bits: int, rows: int, columns: int, halves: bool = False) -> tuple[Int4Grid | Int8Grid, np.ndarray]:
    """A grid, and in float64 what it stands for. halves: it is one of float16, as in a GGUF file."""
    weight = random(rows, columns, seed=rows + columns)
    if bits == 8:
        grid8 = quantise_int8(weight)
        return grid8, grid8.codes.double().numpy() * grid8.scales.double().numpy()[:, None]
    grid = quantise_int4(weight)
    codes = grid.codes.view(rows, -1, 32).double()
    if halves:
        scales, minima = (part.mul(1.001).half().float() for part in (grid.scales, grid.minima))
        grid = Int4Grid(grid.codes, scales, minima)
        values = codes * scales.double()[..., None] + minima.double()[..., None]
        return grid, values.view(rows, columns).numpy()
    middle = middle_of(grid.scales, grid.minima).double()
    return grid, ((codes - 8) * grid.scales.double()[..., None] + middle[..., None]).view(rows, columns).numpy()


def product(matrix: Repacked, x: Tensor, terms: int, threads: int = 1) -> np.ndarray:
    y = torch.empty(len(x), matrix.rows)
    function = matrix._library.functions.forerun_linear
    assert function(byref(matrix.view), x.data_ptr(), len(x), y.data_ptr(), terms, threads) == 0
    return y.double().numpy()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("bits", "halves"), FORMS)
@pytest.mark.parametrize("terms", [1, 2])
def test_products_are_near_float64_on_the_same_codes(level: str, bits: int, halves: bool, terms: int) -> None:
    for rows, columns in SHAPES:
        grid, exact = made(bits, rows, columns, halves)
        matrix = Repacked(kernels(level), grid)
        for n in (1, 2, 3, 5, 6, 7, 13):
            x = random(n, columns, seed=n)
            wanted = x.double().numpy() @ exact.T
            error = np.sqrt(np.mean((product(matrix, x, terms) - wanted) ** 2) / np.mean(wanted**2))
            assert error < TOLERANCE[terms], (rows, columns, n)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("bits", "halves"), FORMS)
def test_a_row_has_the_same_bits_beside_any_others_and_on_any_threads(level: str, bits: int, halves: bool) -> None:
    grid, _ = made(bits, 97, 64, halves)
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


@pytest.mark.parametrize(("bits", "halves"), FORMS)
def test_the_grid_comes_back_as_it_was(bits: int, halves: bool) -> None:
    grid, exact = made(bits, 97, 64, halves)
    matrix = Repacked(kernels(), grid)
    assert matrix.halves == halves
    assert torch.equal(matrix.grid().codes, grid.codes)
    assert np.allclose(matrix.dense().double().numpy(), exact, rtol=1e-6, atol=1e-6)
    some = torch.tensor([96, 0, 17])
    assert torch.equal(matrix.picked(some).dense(), matrix.dense()[some])


@pytest.mark.parametrize(("bits", "halves"), FORMS)
def test_an_embedding_gives_its_rows(bits: int, halves: bool) -> None:
    grid, exact = made(bits, 97, 64, halves)
    ids = torch.tensor([96, 0, 17, 17])
    # float64 holds the values as they are, which are rounded once
    assert np.array_equal(Repacked(kernels(), grid).embed(ids).numpy(), exact[ids].astype(np.float32))


def test_some_rows_keep_the_bits_of_their_products_in_either_form() -> None:
    x, some = random(3, 64), torch.tensor([16, 3, 96])
    for halves in (False, True):
        # both forms hold codes without scales, so that the rows alone don't tell which it was
        grid = Int4Grid(torch.full((97, 64), 8, dtype=torch.uint8), torch.ones(97, 2), torch.full((97, 2), -7.0))
        matrix = Repacked(kernels(), grid, halves=halves)
        part = matrix.picked(some)
        assert isinstance(part, Repacked)
        assert part.halves == halves
        assert torch.equal(part(x), matrix(x)[:, some])


def test_scales_of_any_size_are_held_in_the_nearer_form() -> None:
    halves, _ = made(4, 16, 32, halves=True)
    assert isinstance(halves, Int4Grid)
    assert nearer_in_halves(halves)
    for size in (1e-9, 1e9):
        assert not nearer_in_halves(Int4Grid(halves.codes, halves.scales * size, halves.minima * size))


@pytest.mark.parametrize("level", LEVELS)
def test_float16_scales_are_read_exactly_down_to_the_smallest(level: str) -> None:
    scales = torch.tensor([6e-8, 6.1e-5, 1.0, 65504.0]).half().float().repeat(4)[:, None]
    grid = Int4Grid(torch.ones(16, 32, dtype=torch.uint8), scales, -2 * scales.clamp(max=1))
    x = torch.zeros(1, 32)
    x[0, 0] = 127.0
    wanted = 127 * (grid.scales + grid.minima)[:, 0]
    assert np.array_equal(product(Repacked(kernels(level), grid, halves=True), x, 1)[0], wanted.double().numpy())


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
    with pytest.raises(UnsupportedOption, match="groups of 4 columns and a matrix has 33; set FORERUN_NATIVE=off"):
        Repacked(kernels(), quantise_int8(random(4, 33)))


@pytest.mark.parametrize("columns", [16, 48, 100])
def test_codes_of_8_bits_may_end_within_a_group(columns: int) -> None:
    grid, exact = made(8, 40, columns)
    matrix, x = Repacked(kernels(), grid), random(5, columns)
    wanted = x.double().numpy() @ exact.T
    assert np.abs(matrix(x).numpy() - wanted).max() < 1e-3 * np.abs(wanted).max()
    assert torch.equal(matrix(x)[2], matrix(x[2:3])[0])
    held = matrix.grid()
    assert isinstance(held, Int8Grid)
    assert torch.equal(held.codes, grid.codes)
    ids = torch.tensor([0, 39, 17])
    assert torch.equal(matrix.embed(ids), grid.dense()[ids])


def test_any_float_type_and_stride_is_taken() -> None:
    matrix = Repacked(kernels(), made(4, 16, 32)[0])
    x = random(4, 64).bfloat16()[:, ::2]
    assert torch.equal(matrix(x), matrix(x.float().contiguous()))
