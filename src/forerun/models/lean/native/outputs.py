"""Room for the rows that a forward gives, used again once nobody holds them.

Memory that goes back to the system after each step comes back page by page, which can take longer than all else in Python.
"""

from __future__ import annotations

from typing import Any, final
from weakref import ref

import numpy as np
import torch
from torch import Tensor

KEPT = 16  # buffers, about as many as rows of a draft are held at a time


@final
class Outputs:
    """float32 rows of one width. Not for several threads at once.

    fill: what new room holds, for rows of which a step writes a part: who takes them must not change the rest.
    """

    def __init__(self, width: int, fill: float | None = None) -> None:
        self._width = width
        self._fill = fill
        # a buffer, and the view of it that was handed out last: a tensor keeps it alive
        self._buffers: list[tuple[Any, ref[Any]]] = []

    def take(self, rows: int) -> Tensor:
        """Rows [rows, width] of any content, which nobody else holds."""
        for index, (buffer, holder) in enumerate(self._buffers):
            if holder() is None and len(buffer) >= rows:
                view = buffer[:rows]
                self._buffers[index] = buffer, ref(view)
                return torch.from_numpy(view)
        buffer = np.empty((max(rows, 1), self._width), np.float32)
        if self._fill is not None:
            buffer.fill(self._fill)
        view = buffer[:rows]
        free = [index for index, (_, holder) in enumerate(self._buffers) if holder() is None]
        if free:  # it is too small
            self._buffers[free[0]] = buffer, ref(view)
        elif len(self._buffers) < KEPT:
            self._buffers.append((buffer, ref(view)))
        return torch.from_numpy(view)
