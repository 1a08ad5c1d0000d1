"""Memory for weights in large pages.

A step reads all weights, page after page, and most matrices are smaller than a large page: so they share some.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from .library import Library

PAGE = 2 << 20
CHUNK = 64 << 20
LINE = 64


@final
class Room:
    """Gives pieces of chunks of memory, which are taken from the system a page at a time, when they are first written to.

    A chunk stays as long as any piece of it.
    """

    def __init__(self, library: Library, chunk: int = CHUNK) -> None:
        self._library = library
        self._chunk = chunk
        self._left: Tensor = torch.empty(0, dtype=torch.uint8)

    def take(self, nbytes: int) -> Tensor:
        """Uninitialised bytes [nbytes] at a multiple of 64."""
        whole = -(-nbytes // LINE) * LINE
        if whole > len(self._left):
            self._left = self._new_chunk(max(whole, self._chunk))
        piece, self._left = self._left[:nbytes], self._left[whole:]
        return piece

    def _new_chunk(self, nbytes: int) -> Tensor:
        chunk = torch.empty(nbytes + PAGE, dtype=torch.uint8)
        chunk = chunk[-chunk.data_ptr() % PAGE :]
        self._library.functions.forerun_large_pages(chunk.data_ptr(), len(chunk))
        return chunk
