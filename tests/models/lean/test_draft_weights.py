"""Matrices of compact drafts: what their codes stand for, and what they lack."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from forerun.errors import InvalidModelFile, UnsupportedOption
from forerun.models.lean.draft_weights import BLOCKS, CODES, SCALES, CompactSource, compacted, q4_0_blocks
from forerun.models.lean.from_gguf import GRIDS
from forerun.models.lean.weights import Int4Grid, dense, quantise_int8

CPU = torch.device("cpu")


def random(rows: int = 6, columns: int = 96) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(3))


def source(tensors: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> CompactSource:
    return CompactSource(tensors, dtype, CPU, 0.0)


def off(held: Tensor, weight: Tensor) -> float:
    return float((held - weight).norm() / weight.norm())


def test_blocks_are_those_that_gguf_reads() -> None:
    weight = random()
    blocks = q4_0_blocks(weight)
    assert (blocks.dtype, blocks.shape) == (torch.uint8, (6, 3 * 18))
    gguf = pytest.importorskip("gguf")
    read = torch.from_numpy(gguf.quants.dequantize(blocks.numpy(), gguf.GGMLQuantizationType.Q4_0))
    assert torch.equal(read, GRIDS["Q4_0"](blocks).dense())
    assert off(read, weight) < 0.1


def test_scales_are_chosen_for_the_least_error() -> None:
    gguf = pytest.importorskip("gguf")
    weight = random(64, 256)
    usual = gguf.quants.quantize(weight.numpy(), gguf.GGMLQuantizationType.Q4_0)
    found = torch.from_numpy(gguf.quants.dequantize(usual, gguf.GGMLQuantizationType.Q4_0))
    assert off(GRIDS["Q4_0"](q4_0_blocks(weight)).dense(), weight) < 0.95 * off(found, weight)


def test_what_is_on_the_grid_stays() -> None:
    codes = torch.randint(-8, 8, (4, 64), generator=torch.Generator().manual_seed(0)).float()
    codes[:, ::32] = -8
    weight = codes * 0.125
    assert torch.equal(GRIDS["Q4_0"](q4_0_blocks(weight)).dense(), weight)


def test_a_group_of_zeros_stays_zero() -> None:
    assert torch.equal(GRIDS["Q4_0"](q4_0_blocks(torch.zeros(2, 64))).dense(), torch.zeros(2, 64))


def test_a_draft_is_given_back_in_its_form() -> None:
    weights = {"a.weight": random(), "norm.weight": torch.tensor([1.0, 0.5])}
    four = source(compacted(weights, "int4"))
    assert four.has("a.weight")
    matrix = four.take("a.weight")
    assert isinstance(matrix, Int4Grid)
    assert torch.equal(dense(four.take("norm.weight")), weights["norm.weight"])
    assert four.left() == []
    assert not four.has("a.weight")
    eight = source(compacted(weights, "int8")).take("a.weight")
    assert off(dense(eight), weights["a.weight"]) < 0.01


def test_codes_of_8_bits_survive_being_made_again() -> None:
    held = compacted({"a": random(16)}, "int8")
    again = quantise_int8(dense(source(dict(held)).take("a")))
    assert torch.equal(again.codes, held["a" + CODES])
    assert torch.equal(again.scales, held["a" + SCALES].float())


def test_floats_come_in_the_targets_type() -> None:
    held = source({"norm": torch.ones(3).bfloat16()}, torch.bfloat16)
    assert held.dtypes() == {torch.bfloat16}
    assert dense(held.take("norm")).dtype == torch.bfloat16


@pytest.mark.parametrize("held", [{}, {"a" + CODES: torch.zeros(2, 2, dtype=torch.int8)}])
def test_a_weight_that_is_not_there_is_named(held: dict[str, Tensor]) -> None:
    with pytest.raises(InvalidModelFile, match="the compact draft lacks the weight a"):
        source(held).take("a")


def test_forms_that_there_are_not_are_refused() -> None:
    with pytest.raises(UnsupportedOption, match="holds weights as int4 or int8, got 'bf16'"):
        compacted({}, "bf16")
    with pytest.raises(UnsupportedOption, match="come in groups of 32 columns and a matrix has 48; take int8"):
        compacted({"a": torch.zeros(2, 48)}, "int4")
    assert set(compacted({"a": torch.zeros(2, 48)}, "int8")) == {"a" + CODES, "a" + SCALES}
    assert set(compacted({"a": torch.zeros(2, 32)}, "int4")) == {"a" + BLOCKS}
