"""Room for the rows that a forward gives, used again once nobody holds them.

Memory that goes back to the system after each step comes back page by page, which can take longer than all else in Python.
"""

from __future__ import annotations

from typing import TypeAlias, final
from weakref import ref

import numpy as np
import torch
from torch import Tensor

Lent: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.float32]]"
KEPT = 16  # buffers, about as many as rows of a draft are held at a time


@final
class Outputs:
    """float32 rows of one width. Not for several threads at once.

    fill: what new room holds, for rows of which a step writes a part: who takes them must not change the rest.
    """

    def __init__(self, width: int, fill: float | None = None) -> None:
        self._width = width
        self._fill = fill
        # a buffer, its address, and the view of it that was handed out last: a tensor keeps it alive
        self._buffers: list[tuple[Lent, int, ref[Lent]]] = []

    def take(self, rows: int) -> Tensor:
        """Rows [rows, width] of any content, which nobody else holds."""
        return torch.from_numpy(self.lend(rows)[0])

    def lend(self, rows: int) -> tuple[Lent, int]:
        """The same as an array, whose tensors hold it, with its address."""
        for index, (buffer, address, holder) in enumerate(self._buffers):
            if holder() is None and len(buffer) >= rows:
                view = buffer[:rows]
                self._buffers[index] = buffer, address, ref(view)
                return view, address
        buffer = np.empty((max(rows, 1), self._width), np.float32)
        if self._fill is not None:
            buffer.fill(self._fill)
        view, address = buffer[:rows], int(buffer.ctypes.data)
        free = [index for index, (_, _, holder) in enumerate(self._buffers) if holder() is None]
        if free:  # it is too small
            self._buffers[free[0]] = buffer, address, ref(view)
        elif len(self._buffers) < KEPT:
            self._buffers.append((buffer, address, ref(view)))
        return view, address
