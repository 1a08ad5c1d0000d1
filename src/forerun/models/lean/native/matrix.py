"""Matrices in the order in which native products read them: blocks of 16 rows, of each 32 columns at a time.

int4: a group of a block is 4 x 16 x 4 bytes (columns k, k + 16 of a row in the low and the high half, four neighbours
together), then 16 pairs of bfloat16 (scale, value of code 8: the grid of torch's kernels), or 16 scales and 16 values of
code 0 in float16 (that of GGUF's Q4_0 and Q4_1, to the last bit). int8: 8 x 16 x 4 bytes of codes + 128, and after a
block's last group, which may be filled up, 16 float32 scales.
"""

from __future__ import annotations

from abc import abstractmethod
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
FOUR = 4  # neighbouring columns that stand together
TERMS = 2  # of 8 bits, for what asks for one product alone


def filled(rows: Tensor) -> Tensor:
    """The rows and as many zeros as the last block lacks."""
    return F.pad(rows, (*(0, 0) * (rows.ndim - 1), 0, -rows.shape[0] % LANES))


def placed(library: Library, packed: Tensor, room: Room | None) -> Tensor:
    """A copy of what was packed, aligned. room: where it lies together with other matrices."""
    data = (room or Room(library)).take(packed.nbytes).view(packed.dtype).view(packed.shape).copy_(packed)
    assert data.data_ptr() % 64 == 0, "native loads are aligned"
    return data


class NativeMatrix(Table):
    """A matrix in blocks of LANES rows, of `bits` bits a weight. Products take float32 rows and give such."""

    columns: int
    bits: int
    halves: bool = False
    _library: Library
    _data: Tensor

    @property
    def view(self) -> MatrixView:
        """For native code. It holds as long as this matrix does."""
        bias = None if self.bias is None else self.bias.data_ptr()
        return MatrixView(self._data.data_ptr(), bias, self.rows, self.columns, self.bits, self.halves)

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

    def as_head(self) -> Linear:
        return self

    @abstractmethod
    def picked(self, rows: Tensor) -> NativeMatrix:
        """Some rows of the matrix, without its bias."""

    @property
    def nbytes(self) -> int:
        return int(self._data.nbytes)


@final
class Repacked(NativeMatrix):
    """Codes of a grid. dtype is what is made beside it is held in.

    halves: 4-bit scales are held in float16, else in bfloat16; by default in what is nearer to the grid. room: where it lies
    together with other matrices.
    """

    def __init__(
        self,
        library: Library,
        grid: Int4Grid | Int8Grid,
        bias: Tensor | None = None,
        halves: bool | None = None,
        room: Room | None = None,
    ) -> None:
        self.rows, self.columns = grid.codes.shape
        self.bits = 4 if isinstance(grid, Int4Grid) else 8
        each = GROUP if self.bits == 4 else FOUR
        if self.columns % each:
            raise UnsupportedOption(
                f"native weights come in groups of {each} columns and a matrix has {self.columns}; set FORERUN_NATIVE=off"
            )
        self.bias = None if bias is None else filled(bias.float()).contiguous()
        self.dtype, self.device = torch.bfloat16, grid.codes.device
        self._library = library
        if isinstance(grid, Int4Grid):
            self.halves = nearer_in_halves(grid) if halves is None else halves
            packed = _int4_blocks(grid, self.halves)
        else:
            packed = _int8_blocks(grid)
        self._data = placed(library, packed, room)

    def grid(self) -> Int4Grid | Int8Grid:
        """The codes that it was made of."""
        return (
            _int4_grid(self._data, self.rows, self.halves)
            if self.bits == 4
            else _int8_grid(self._data, self.rows, self.columns)
        )

    def dense(self) -> Tensor:
        return self.grid().dense()

    def embed(self, ids: Tensor) -> Tensor:
        blocks, lanes = ids // LANES, ids % LANES
        if self.bits == 4:
            both = _int4_codes(self._data)[blocks, :, :, lanes].flatten(2)
            scales, offsets = (part[blocks, :, lanes].float() for part in _int4_pairs(self._data, self.halves))
            codes = torch.cat([both & 15, both >> 4], -1).float() - (0 if self.halves else 8)
            return (codes * scales[..., None] + offsets[..., None]).flatten(1)
        codes = _int8_codes(self._data)[blocks, :, :, lanes].reshape(len(ids), -1)[:, : self.columns]
        return (codes.float() - 128) * _int8_scales(self._data)[blocks, lanes][:, None]

    def picked(self, rows: Tensor) -> Repacked:
        # from where they lie: undoing the whole of a large head takes a quarter of a second
        blocks, lanes = rows // LANES, rows % LANES
        if self.bits == 4:
            both = _int4_codes(self._data)[blocks, :, :, lanes].flatten(2)
            codes = torch.cat([both & 15, both >> 4], -1).flatten(1)
            scales, offsets = (part[blocks, :, lanes].float() for part in _int4_pairs(self._data, self.halves))
            minima = offsets if self.halves else offsets - 8 * scales
            return Repacked(self._library, Int4Grid(codes, scales, minima), halves=self.halves)
        codes = _int8_codes(self._data)[blocks, :, :, lanes].reshape(len(rows), -1)[:, : self.columns]
        return Repacked(
            self._library, Int8Grid((codes.short() - 128).to(torch.int8), _int8_scales(self._data)[blocks, lanes])
        )


def nearer_in_halves(grid: Int4Grid) -> bool:
    """Whether values move less with scales and minima in float16 than with scales and middles in bfloat16."""
    middles = middle_of(grid.scales, grid.minima)
    coarse = 8 * _rounding(grid.scales, torch.bfloat16) + (middles - 8 * grid.scales - grid.minima).abs()
    halves = 15 * _rounding(grid.scales, torch.float16) + _rounding(grid.minima, torch.float16)
    return bool(halves.sum() < coarse.sum())


def _rounding(values: Tensor, dtype: torch.dtype) -> Tensor:
    return (values.to(dtype).float() - values).abs()


def _int4_blocks(grid: Int4Grid, halves: bool) -> Tensor:
    columns = grid.codes.shape[1]
    codes = filled(grid.codes).view(-1, LANES, columns // GROUP, 2, 4, 4)
    both = codes[:, :, :, 0] | codes[:, :, :, 1] << 4
    both = both.permute(0, 2, 3, 1, 4).flatten(2)
    if halves:
        pairs = torch.stack([grid.scales, grid.minima], -1).half()
        order = (0, 2, 3, 1)
    else:
        pairs = torch.stack([grid.scales, middle_of(grid.scales, grid.minima)], -1).bfloat16()
        order = (0, 2, 1, 3)
    pairs = filled(pairs).view(-1, LANES, columns // GROUP, 2).permute(order).contiguous()
    return torch.cat([both, pairs.view(torch.uint8).flatten(2)], -1)


def _int4_codes(data: Tensor) -> Tensor:
    """Two in a byte, [blocks, groups, 4, LANES, 4]."""
    codes: Tensor = data[:, :, : GROUP * LANES // 2].unflatten(2, (4, LANES, 4))
    return codes


def _int4_pairs(data: Tensor, halves: bool) -> tuple[Tensor, Tensor]:
    """Scales, and the values of code 0 (halves) or 8, [blocks, groups, LANES] each."""
    both = data[:, :, GROUP * LANES // 2 :]
    if halves:
        scales, offsets = both.view(torch.float16).unflatten(2, (2, LANES)).unbind(2)
    else:
        scales, offsets = both.view(torch.bfloat16).unflatten(2, (LANES, 2)).unbind(3)
    return scales, offsets


def _int4_grid(data: Tensor, rows: int, halves: bool) -> Int4Grid:
    groups = data.shape[1]
    codes = _int4_codes(data).permute(0, 3, 1, 2, 4)
    codes = torch.stack([codes & 15, codes >> 4], 3).reshape(-1, groups * GROUP)
    scales, offsets = (part.float().transpose(1, 2).reshape(-1, groups) for part in _int4_pairs(data, halves))
    return Int4Grid(codes[:rows], scales[:rows], (offsets if halves else offsets - 8 * scales)[:rows])


def _int8_blocks(grid: Int8Grid) -> Tensor:
    codes = (F.pad(grid.codes, (0, -grid.codes.shape[1] % GROUP)).short() + 128).to(torch.uint8)
    codes = filled(codes).view(-1, LANES, codes.shape[1] // GROUP, 8, FOUR).permute(0, 2, 3, 1, 4).flatten(1)
    scales = filled(grid.scales.float()).view(-1, LANES).contiguous().view(torch.uint8)
    return torch.cat([codes, scales], -1)


def _int8_codes(data: Tensor) -> Tensor:
    """[blocks, groups, 8, LANES, 4]"""
    codes: Tensor = data[:, : -4 * LANES].unflatten(1, (-1, 8, LANES, FOUR))
    return codes


def _int8_scales(data: Tensor) -> Tensor:
    return data[:, -4 * LANES :].contiguous().view(torch.float32)


def _int8_grid(data: Tensor, rows: int, columns: int) -> Int8Grid:
    codes = _int8_codes(data).permute(0, 3, 1, 2, 4).flatten(2).flatten(0, 1)
    codes = (codes.reshape(-1, codes.shape[-1]).short() - 128).to(torch.int8)
    return Int8Grid(codes[:rows, :columns], _int8_scales(data).flatten()[:rows])
