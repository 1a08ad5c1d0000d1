"""Matrix products, one class for each way of holding the weights.

Every kernel takes rows in any float type, casts them to its own and gives its own back. On a CPU, oneDNN's reordered copy
of a dense matrix takes half the time of F.linear for a few rows, and the 8 and 4-bit kernels are bound by memory up to 4
rows; many rows run as a dense product of weights unpacked for the call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import UnsupportedOption
from .weights import GROUP, Int4Grid, Int8Grid, Matrix, dense, middle_of, quantise_int8, stack_int4

# From this many rows on, unpacking the weights and one dense product beat the small kernels (measured on AVX-512 cores with
# SmolLM2-135M: they meet at 55 and 210 rows).
DENSE_ROWS_INT8 = 64
DENSE_ROWS_INT4 = 192

# Rows of a 4-bit matrix that aten packs together.
BLOCK = 64


class Linear(ABC):
    """y = x W^T + bias."""

    rows: int
    bias: Tensor | None
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """x [n, columns] -> [n, rows] in the kernel's own type."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The weights as floats [rows, columns]."""

    def picked(self, rows: Tensor) -> Linear:
        """Some rows of the matrix, held densely unless its own kind can be cut. Not for matrices with a bias."""
        return _dense_linear(self.dense()[rows])

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory that the weights take."""


class Table(Linear):
    """A matrix whose rows can be read: an embedding, or an embedding and an output head in one."""

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """Rows of the weights, float32 [len(ids), columns]."""

    @abstractmethod
    def as_head(self) -> Linear:
        """The same matrix as an output head: itself, or a copy where rows and products need different orders."""


@final
class Plain(Table):
    """F.linear: for other devices than CPUs, and for a table of which rows are read too."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.rows = weight.shape[0]
        self.bias = None if bias is None else bias.to(weight.dtype)
        self.dtype, self.device = weight.dtype, weight.device
        self._weight = weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.dtype), self._weight, self.bias)

    def dense(self) -> Tensor:
        return self._weight

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._weight).float()

    def as_head(self) -> Linear:
        """In oneDNN's order a product takes a third of the time; a sixth of a small model's step hangs on it."""
        return Reordered(self._weight) if Reordered.applies(self.dtype, self.device) else self

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes


@final
class Reordered(Linear):
    """A dense matrix in the order that oneDNN's kernels read, CPU only."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.rows = weight.shape[0]
        self.bias = None if bias is None else bias.to(weight.dtype)
        self.dtype, self.device = weight.dtype, weight.device
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 2)
        self._product = torch.ops.mkldnn._linear_pointwise.default

    @staticmethod
    def applies(dtype: torch.dtype, device: torch.device) -> bool:
        if device.type != "cpu" or not torch.backends.mkldnn.is_available():
            return False
        return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self._product(x.to(self.dtype), self._weight, self.bias, "none", [], "")
        return y

    def dense(self) -> Tensor:
        weight: Tensor = self._weight.to_dense()
        return weight

    @property
    def nbytes(self) -> int:
        return int(self._weight.nelement()) * self.dtype.itemsize


@final
class Int8(Table):
    """aten's int8 product of bfloat16 rows."""

    def __init__(self, grid: Int8Grid, bias: Tensor | None = None) -> None:
        self.rows = grid.codes.shape[0]
        self.bias = None if bias is None else bias.bfloat16()
        self.dtype, self.device = torch.bfloat16, grid.codes.device
        self._codes = grid.codes.contiguous()
        self._scales = grid.scales.bfloat16()

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype != torch.bfloat16:
            x = x.to(torch.bfloat16)
        if x.shape[0] < DENSE_ROWS_INT8:
            y = torch._weight_int8pack_mm(x, self._codes, self._scales)
        else:
            y = F.linear(x, self._codes.to(torch.bfloat16)).mul_(self._scales)
        return y if self.bias is None else y.add_(self.bias)

    def dense(self) -> Tensor:
        return Int8Grid(self._codes, self._scales.float()).dense()

    def embed(self, ids: Tensor) -> Tensor:
        return self._codes[ids].float().mul_(self._scales[ids][:, None])

    def as_head(self) -> Linear:
        return self

    def picked(self, rows: Tensor) -> Linear:
        return Int8(Int8Grid(self._codes[rows], self._scales[rows].float()))

    @property
    def nbytes(self) -> int:
        return int(self._codes.nbytes + self._scales.nbytes)


@final
class Int4(Linear):
    """aten's 4-bit product of bfloat16 rows, CPU only."""

    def __init__(self, grid: Int4Grid, bias: Tensor | None = None) -> None:
        self.rows = grid.codes.shape[0]
        self.bias = None if bias is None else bias.bfloat16()
        self.dtype, self.device = torch.bfloat16, grid.codes.device
        missing = -self.rows % BLOCK
        codes, scales = F.pad(grid.codes, (0, 0, 0, missing)), F.pad(grid.scales, (0, 0, 0, missing))
        middle = F.pad(middle_of(grid.scales, grid.minima), (0, 0, 0, missing))
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
        self._scales = torch.stack([scales, middle], -1).transpose(0, 1).bfloat16().contiguous()
        self._padded = missing > 0
        self._known_order = torch.equal(_unpack(self._packed[:BLOCK]), codes[:BLOCK].T)
        self._product = torch._weight_int4pack_mm_for_cpu

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype != torch.bfloat16:
            x = x.to(torch.bfloat16)
        if x.shape[0] < DENSE_ROWS_INT4 or not self._known_order:
            y: Tensor = self._product(x, self._packed, GROUP, self._scales)
        else:
            y = x @ self._columns()
        if self._padded:
            y = y[:, : self.rows]
        return y if self.bias is None else y + self.bias

    def _columns(self) -> Tensor:
        """The weights transposed, bfloat16 [columns, rows]."""
        codes = _unpack(self._packed).view(torch.int8).sub_(8)
        # in float32: a bfloat16 product with repeated scales isn't vectorised
        scales, middle = self._scales.float().unbind(-1)
        groups = codes.view(scales.shape[0], GROUP, -1).float()
        return torch.addcmul(middle[:, None], groups, scales[:, None], out=groups).view(codes.shape).bfloat16()

    def dense(self) -> Tensor:
        if not self._known_order:
            raise UnsupportedOption("this CPU packs 4-bit weights in an order that forerun can't undo")
        return self._columns().T[: self.rows]

    @property
    def nbytes(self) -> int:
        return int(self._packed.nbytes + self._scales.nbytes)


def _unpack(packed: Tensor) -> Tensor:
    """Codes [columns, rows] of aten's packing: for each block and column, BLOCK / 2 bytes of two rows BLOCK / 2 apart."""
    rows, half = packed.shape[0], BLOCK // 2
    blocks = packed.view(rows // BLOCK, -1, half).transpose(0, 1)
    codes = blocks.new_empty(blocks.shape[0], rows // BLOCK, 2, half)
    torch.bitwise_and(blocks, 15, out=codes[:, :, 0])
    torch.bitwise_right_shift(blocks, 4, out=codes[:, :, 1])
    return codes.view(-1, rows)


def small_kernel(grid: Int4Grid | Int8Grid, bias: Tensor | None = None) -> Linear:
    return Int4(grid, bias) if isinstance(grid, Int4Grid) else Int8(grid, bias)


def _dense_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    kernel = Reordered if Reordered.applies(weight.dtype, weight.device) else Plain
    return kernel(weight, bias)


@final
@dataclass(frozen=True, slots=True)
class Kernels:
    """How matrices are held: small ones on a grid, dense ones, and tables of dense rows.

    turns: how many rows of gates and of ups take turns, 0 for all gates first. int4_tables: embeddings and heads may be held
    in 4 bits.
    """

    small: Callable[[Int4Grid | Int8Grid, Tensor | None], Linear] = small_kernel
    dense: Callable[[Tensor, Tensor | None], Linear] = _dense_linear
    table: Callable[[Tensor], Table] = Plain
    turns: int = 0
    int4_tables: bool = False


TORCH = Kernels()


def make_linear(
    parts: Sequence[Matrix],
    weights: str,
    bias: Tensor | None = None,
    order: Tensor | None = None,
    kernels: Kernels = TORCH,
) -> Linear:
    """One matrix out of several under each other, rows in the given order, held as weights says.

    "" keeps the type of the parts. Raises UnsupportedOption where small weights have no kernel on the device.
    """
    if weights == "int4":
        grid = stack_int4(parts)
        _need_cpu(grid.codes.device, weights)
        return kernels.small(grid if order is None else grid.take(order), bias)
    weight = torch.cat([dense(part) for part in parts])
    if order is not None:
        weight = weight[order]
    if weights == "int8":
        _need_cpu(weight.device, weights)
        return kernels.small(quantise_int8(weight), bias)
    return kernels.dense(weight.to(_dtype_of(weights, weight.dtype)), bias)


def make_head(matrix: Matrix, weights: str, kernels: Kernels = TORCH) -> Linear:
    """The output head. Its errors reach the output at first hand, so where the layers are in 4 bits it is held in 8.

    In 4, too, where the model's file has it on the 4-bit grid already and kernels can read it by rows.
    """
    if weights == "int4" and not (kernels.int4_tables and isinstance(matrix, Int4Grid)):
        weights = "int8"
    return make_linear([matrix], weights, kernels=kernels)


def make_table(matrix: Matrix, weights: str, kernels: Kernels = TORCH) -> Table:
    """The embedding, from which the output head is read too where the two are tied; held like a head."""
    if weights in ("int8", "int4"):
        table = make_head(matrix, weights, kernels)
        assert isinstance(table, Table), "8-bit kernels can be read by rows"
        return table
    weight = dense(matrix)
    return kernels.table(weight.to(_dtype_of(weights, weight.dtype)))


def _dtype_of(weights: str, own: torch.dtype) -> torch.dtype:
    return {"bf16": torch.bfloat16, "float32": torch.float32}.get(weights, own)


def _need_cpu(device: torch.device, weights: str) -> None:
    if device.type != "cpu":
        raise UnsupportedOption(f"{weights} weights have kernels for CPUs only, not for {device.type}; take bf16")
