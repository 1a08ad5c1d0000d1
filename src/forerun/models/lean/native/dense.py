"""Float matrices in the order in which native products read them: blocks of 16 rows, column by column.

float32: a column of a block is 16 numbers. bfloat16: two columns are 16 pairs of numbers; an odd one is paired with zeros.
"""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from ....errors import UnsupportedOption
from .library import Library
from .matrix import LANES, NativeMatrix, filled, placed
from .room import Room

TYPES = (torch.float32, torch.bfloat16)


@final
class Dense(NativeMatrix):
    """float32 or bfloat16 as given. float32 rows are multiplied as they are, not rounded to the weights' type.

    room: where it lies together with other matrices.
    """

    def __init__(self, library: Library, weight: Tensor, bias: Tensor | None = None, room: Room | None = None) -> None:
        if weight.dtype not in TYPES:
            raise UnsupportedOption(
                f"the native step holds floats of {' or '.join(map(str, TYPES))}, not of {weight.dtype}; "
                "set FORERUN_NATIVE=off"
            )
        self.rows, self.columns = weight.shape
        self.bits = 8 * weight.dtype.itemsize
        self.bias = None if bias is None else filled(bias.float()).contiguous()
        self.dtype, self.device = weight.dtype, weight.device
        self._library = library
        self._data = placed(library, _blocks(weight), room)

    def dense(self) -> Tensor:
        return self._data.transpose(1, 2).flatten(2).flatten(0, 1)[: self.rows, : self.columns]

    def embed(self, ids: Tensor) -> Tensor:
        return self._data[ids // LANES, :, ids % LANES].flatten(1)[:, : self.columns].float()

    def picked(self, rows: Tensor) -> Dense:
        return Dense(self._library, self._data[rows // LANES, :, rows % LANES].flatten(1)[:, : self.columns])


def _blocks(weight: Tensor) -> Tensor:
    """[blocks, lines, LANES, columns of a line]"""
    each = 4 // weight.dtype.itemsize
    weight = F.pad(filled(weight), (0, -weight.shape[1] % each))
    return weight.view(-1, LANES, weight.shape[1] // each, each).transpose(1, 2).contiguous()
