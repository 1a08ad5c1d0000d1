"""How a compact draft holds its matrices: int4 as GGUF's Q4_0 blocks, int8 as codes with a scale for each row.

A Q4_0 block is 18 bytes for GROUP columns of a row: a float16 scale, then the codes 0..15, the first half of the columns in
the low halves of the bytes; a value is (code - 8) * scale. Vectors are bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from ...errors import InvalidModelFile, UnsupportedOption
from .build import Source
from .from_gguf import GRIDS
from .weights import GROUP, Int8Grid, Matrix, quantise_int8

FORMS = ("int4", "int8")
BLOCKS, CODES, SCALES = ".q4_0", ".codes", ".scales"
# shares of the largest value that code 0 or code 15 may stand for, of which the best is taken, for each group
_SHARES = torch.linspace(0.75, 1.05, 9)


def compacted(weights: Mapping[str, Tensor], form: str) -> dict[str, Tensor]:
    """A draft's weights as its file holds them. Raises UnsupportedOption where a matrix has no such form."""
    if form not in FORMS:
        raise UnsupportedOption(f"a compact draft holds weights as {' or '.join(FORMS)}, got {form!r}")
    held: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.ndim != 2:
            held[name] = weight.bfloat16()
        elif form == "int4":
            held[name + BLOCKS] = q4_0_blocks(weight)
        else:
            grid = quantise_int8(weight)
            held[name + CODES], held[name + SCALES] = grid.codes, grid.scales.bfloat16()
    return held


def q4_0_blocks(weight: Tensor) -> Tensor:
    """uint8 [rows, columns / GROUP * 18], each group's scale chosen for the least squared error."""
    rows, columns = weight.shape
    if columns % GROUP:
        raise UnsupportedOption(f"int4 weights come in groups of {GROUP} columns and a matrix has {columns}; take int8")
    groups = weight.float().view(-1, GROUP)
    largest = groups.gather(1, groups.abs().argmax(1, keepdim=True))
    best = torch.zeros(len(groups), 1)
    least = groups.square().sum(1, keepdim=True)
    for share in _SHARES:
        scales = (largest * share / -8).half().float()
        codes = _codes(groups, scales)
        # the scale that these codes fit best
        scales = (
            ((groups * codes).sum(1, keepdim=True) / codes.square().sum(1, keepdim=True).clamp(min=1)).half().float()
        )
        error = (groups - codes * scales).square().sum(1, keepdim=True)
        best, least = torch.where(error < least, scales, best), torch.minimum(error, least)
    codes = (_codes(groups, best) + 8).to(torch.uint8)
    low, high = codes.split(GROUP // 2, 1)
    return torch.cat([best.half().view(torch.uint8), low | high << 4], 1).view(rows, -1)


def _codes(groups: Tensor, scales: Tensor) -> Tensor:
    """-8..7"""
    return (groups / torch.where(scales == 0, 1, scales)).round().clamp(-8, 7)


@final
class CompactSource(Source):
    """A compact draft's tensors. dtype: what it has in floats. On other devices than CPUs it has floats alone."""

    def __init__(self, tensors: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device, offset: float) -> None:
        self._tensors = dict(tensors)
        self._dtype, self._device = dtype, device
        self.offset = offset

    def has(self, name: str) -> bool:
        return not {name, name + BLOCKS, name + CODES}.isdisjoint(self._tensors)

    def take(self, name: str) -> Matrix:
        if (blocks := self._tensors.pop(name + BLOCKS, None)) is not None:
            grid = GRIDS["Q4_0"](blocks)
            return grid if self._device.type == "cpu" else grid.dense().to(self._device, self._dtype)
        if (codes := self._tensors.pop(name + CODES, None)) is not None:
            return Int8Grid(codes, self._taken(name + SCALES).float()).dense().to(self._device)
        return self._taken(name).to(self._device, self._dtype)

    def _taken(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise InvalidModelFile(f"the compact draft lacks the weight {name}")
        return self._tensors.pop(name)

    def dtypes(self) -> frozenset[torch.dtype]:
        return frozenset({self._dtype})

    def left(self) -> list[str]:
        return sorted(self._tensors)
