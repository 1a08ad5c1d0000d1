"""Small weights: matrices on an 8-bit or a 4-bit grid, and how they get there.

int8 has one scale a row: w = code * scale. int4 has a scale and a minimum for every GROUP columns of a row:
w = code * scale + minimum, codes 0..15, which is also what GGUF's Q4_0, Q4_1 and Q4_K hold. Scales are rounded to bfloat16
(the kernels' type) before codes are chosen, so that the codes are the nearest ones on the grid that is really used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ...errors import UnsupportedOption

WeightsName = Literal["", "float32", "bf16", "int8", "int4"]
WEIGHTS: tuple[str, ...] = tuple(name for name in get_args(WeightsName) if name)
GROUP = 32


@dataclass(frozen=True, slots=True, eq=False)
class Int8Grid:
    """codes int8 [rows, columns], scales float32 [rows]."""

    codes: Tensor
    scales: Tensor

    def dense(self) -> Tensor:
        return self.codes.float() * self.scales[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class Int4Grid:
    """codes uint8 [rows, columns] in 0..15, scales and minima float32 [rows, columns / GROUP]."""

    codes: Tensor
    scales: Tensor
    minima: Tensor

    def dense(self) -> Tensor:
        groups = self.codes.view(*self.scales.shape, GROUP).float()
        return (groups * self.scales[..., None] + self.minima[..., None]).view(self.codes.shape)

    def take(self, rows: Tensor) -> Int4Grid:
        return Int4Grid(self.codes[rows], self.scales[rows], self.minima[rows])


# What a model file gives: floats, or codes that are on the 4-bit grid already.
Matrix = Tensor | Int4Grid


def check_weights(name: str) -> None:
    """Raise UnsupportedOption on a name that is not in WEIGHTS; "" is a model's own type."""
    if name and name not in WEIGHTS:
        raise UnsupportedOption(f"unknown weights {name!r}; known: {', '.join(WEIGHTS)}")


def quantise_int8(weight: Tensor) -> Int8Grid:
    """Symmetric, one scale a row, the largest value at code 127."""
    values = weight.float()
    scales = (values.abs().amax(1) / 127).clamp(min=torch.finfo(torch.bfloat16).tiny).bfloat16().float()
    codes = (values / scales[:, None]).round_().clamp_(-127, 127)
    return Int8Grid(codes.to(torch.int8), scales)


def quantise_int4(weight: Tensor) -> Int4Grid:
    """Asymmetric, GROUP columns of a row between their minimum and maximum.

    Raises UnsupportedOption where the number of columns isn't a multiple of GROUP.
    """
    rows, columns = weight.shape
    if columns % GROUP:
        raise UnsupportedOption(
            f"int4 weights come in groups of {GROUP} columns and a matrix has {columns}; take int8 or bf16"
        )
    groups = weight.float().view(rows, -1, GROUP)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scales = ((high - low) / 15).clamp(min=torch.finfo(torch.bfloat16).tiny).bfloat16().float()
    minima = middle_of(scales, low) - 8 * scales
    codes = ((groups - minima) / scales).round_().clamp_(0, 15).to(torch.uint8)
    return Int4Grid(codes.view(rows, columns), scales.squeeze(-1), minima.squeeze(-1))


def middle_of(scales: Tensor, minima: Tensor) -> Tensor:
    """The value of code 8, which the kernel holds in bfloat16 in the minimum's place."""
    return (minima + 8 * scales).bfloat16().float()


def dense(matrix: Matrix) -> Tensor:
    return matrix if isinstance(matrix, Tensor) else matrix.dense()


def stack_int4(parts: Sequence[Matrix]) -> Int4Grid:
    """Matrices of equally many columns under each other; those that are floats yet are quantised."""
    grids = [quantise_int4(part) if isinstance(part, Tensor) else part for part in parts]
    return Int4Grid(
        torch.cat([grid.codes for grid in grids]),
        torch.cat([grid.scales for grid in grids]),
        torch.cat([grid.minima for grid in grids]),
    )
