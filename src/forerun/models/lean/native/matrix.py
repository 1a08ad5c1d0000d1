"""Matrices in the order in which native products read them: blocks of 16 rows, of each 32 columns at a time.

int4: a group of a block is 4 x 16 x 4 bytes (columns k, k + 16 of a row in the low and the high half, four neighbours
together), then 16 pairs of bfloat16: scale, value of code 8. int8: 8 x 16 x 4 bytes of codes + 128, and after a block's
last group 16 float32 scales. The grids are those of torch's kernels.
"""

from __future__ import annotations

from ctypes import byref
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from ....errors import UnsupportedOption
from ..linear import Linear, Table
from ..weights import GROUP, Int4Grid, Int8Grid, middle_of
from .library import Library, check
from .room import Room
from .views import MatrixView

LANES = 16
TERMS = 2  # of 8 bits, for what asks for one product alone


@final
class Repacked(Table):
    """dtype is what is made beside it is held in; products themselves take float32 rows and give such.

    room: where it lies together with other matrices.
    """

    def __init__(
        self, library: Library, grid: Int4Grid | Int8Grid, bias: Tensor | None = None, room: Room | None = None
    ) -> None:
        self.rows, self.columns = grid.codes.shape
        if self.columns % GROUP:
            raise UnsupportedOption(
                f"native weights come in groups of {GROUP} columns and a matrix has {self.columns}; set FORERUN_NATIVE=off"
            )
        self.bits = 4 if isinstance(grid, Int4Grid) else 8
        self.bias = None if bias is None else _filled(bias.float()).contiguous()
        self.dtype, self.device = torch.bfloat16, grid.codes.device
        self._library = library
        packed = _int4_blocks(grid) if isinstance(grid, Int4Grid) else _int8_blocks(grid)
        self._data = (room or Room(library)).take(packed.nbytes).view(packed.shape).copy_(packed)
        assert self._data.data_ptr() % 64 == 0, "native loads are aligned"

    @property
    def view(self) -> MatrixView:
        """For native code. It holds as long as this matrix does."""
        bias = None if self.bias is None else self.bias.data_ptr()
        return MatrixView(self._data.data_ptr(), bias, self.rows, self.columns, self.bits, 0)

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.columns:
            raise ValueError(f"a product with {self.columns} columns was given rows of shape {tuple(x.shape)}")
        x = x.float().contiguous()
        y = torch.empty(len(x), self.rows)
        if len(x):
            function = self._library.functions.forerun_linear
            threads = torch.get_num_threads()
            check(function(byref(self.view), x.data_ptr(), len(x), y.data_ptr(), TERMS, threads))
        return y

    def grid(self) -> Int4Grid | Int8Grid:
        """The codes that it was made of."""
        return (_int4_grid if self.bits == 4 else _int8_grid)(self._data, self.rows)

    def dense(self) -> Tensor:
        return self.grid().dense()

    def embed(self, ids: Tensor) -> Tensor:
        if self.bits != 8:
            raise UnsupportedOption("an embedding of 4 bits can't be read yet; hold it in 8")
        blocks, lanes = ids // LANES, ids % LANES
        codes = _int8_codes(self._data)[blocks, :, :, lanes].reshape(len(ids), -1)
        return (codes.float() - 128) * _int8_scales(self._data)[blocks, lanes][:, None]

    def as_head(self) -> Linear:
        return self

    def picked(self, rows: Tensor) -> Linear:
        grid = self.grid()
        if isinstance(grid, Int4Grid):
            return Repacked(self._library, grid.take(rows))
        return Repacked(self._library, Int8Grid(grid.codes[rows], grid.scales[rows]))

    @property
    def nbytes(self) -> int:
        return int(self._data.nbytes)


def _filled(rows: Tensor) -> Tensor:
    """The rows and as many zeros as the last block lacks."""
    return F.pad(rows, (*(0, 0) * (rows.ndim - 1), 0, -rows.shape[0] % LANES))


def _int4_blocks(grid: Int4Grid) -> Tensor:
    columns = grid.codes.shape[1]
    codes = _filled(grid.codes).view(-1, LANES, columns // GROUP, 2, 4, 4)
    both = codes[:, :, :, 0] | codes[:, :, :, 1] << 4
    both = both.permute(0, 2, 3, 1, 4).flatten(2)
    pairs = torch.stack([grid.scales, middle_of(grid.scales, grid.minima)], -1).bfloat16()
    pairs = _filled(pairs).view(-1, LANES, columns // GROUP, 2).transpose(1, 2).contiguous()
    return torch.cat([both, pairs.view(torch.uint8).flatten(2)], -1)


def _int4_grid(data: Tensor, rows: int) -> Int4Grid:
    groups = data.shape[1]
    codes = data[:, :, : GROUP * LANES // 2].view(-1, groups, 4, LANES, 4).permute(0, 3, 1, 2, 4)
    codes = torch.stack([codes & 15, codes >> 4], 3).reshape(-1, groups * GROUP)
    pairs = data[:, :, GROUP * LANES // 2 :].contiguous().view(torch.bfloat16).view(-1, groups, LANES, 2)
    scales, middles = pairs.float().transpose(1, 2).reshape(-1, groups, 2).unbind(-1)
    return Int4Grid(codes[:rows], scales[:rows], (middles - 8 * scales)[:rows])


def _int8_blocks(grid: Int8Grid) -> Tensor:
    columns = grid.codes.shape[1]
    codes = (grid.codes.short() + 128).to(torch.uint8)
    codes = _filled(codes).view(-1, LANES, columns // GROUP, 8, 4).permute(0, 2, 3, 1, 4).flatten(1)
    scales = _filled(grid.scales.float()).view(-1, LANES).contiguous().view(torch.uint8)
    return torch.cat([codes, scales], -1)


def _int8_codes(data: Tensor) -> Tensor:
    """[blocks, groups, 8, LANES, 4]"""
    codes: Tensor = data[:, : -4 * LANES].unflatten(1, (-1, 8, LANES, 4))
    return codes


def _int8_scales(data: Tensor) -> Tensor:
    return data[:, -4 * LANES :].contiguous().view(torch.float32)


def _int8_grid(data: Tensor, rows: int) -> Int8Grid:
    codes = _int8_codes(data).permute(0, 3, 1, 2, 4).flatten(2).flatten(0, 1)
    codes = (codes.reshape(-1, codes.shape[-1]).short() - 128).to(torch.int8)
    return Int8Grid(codes[:rows], _int8_scales(data).flatten()[:rows])
