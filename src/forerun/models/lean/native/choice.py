"""Rows of logits, read natively: the best tokens, and what top-k, top-p and min-p leave, in one pass over the vocabulary."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from threading import local
from typing import final

import torch
from torch import Tensor

from ....core.choice import Chooser
from ....core.forward import Later
from ....core.law import Filtered, Law
from ....core.values import Sampling
from .library import Library, check
from .views import FiltersView

ROOM = 1024  # tokens that filters may leave; of more, torch's operations make the law


@final
class NativeChooser(Chooser):
    """Threads may share it."""

    def __init__(self, library: Library) -> None:
        self._best = library.functions.forerun_best
        self._filtered = library.functions.forerun_filtered
        self._room = local()

    def best(self, rows: Tensor) -> tuple[list[float], list[int]] | None:
        if not _readable(rows):
            return None
        size = rows.shape[-1]
        count, apart = (1, size) if rows.ndim == 1 or len(rows) == 1 else (len(rows), rows.stride(0))
        values, tokens = (ctypes.c_float * count)(), (ctypes.c_int32 * count)()
        check(self._best(rows.data_ptr(), count, apart, size, values, tokens))
        return list(values), list(tokens)

    def filtered(self, row: Tensor, sampling: Sampling) -> Law | None:
        if not _readable(row):
            return None
        filters = FiltersView(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
        tokens, probs = self._arrays()
        count = self._filtered(row.data_ptr(), row.shape[0], filters, ROOM, tokens, probs)
        return Filtered(tokens[:count], probs[:count]) if count else None

    def _arrays(self) -> tuple[ctypes.Array[ctypes.c_int32], ctypes.Array[ctypes.c_double]]:
        """Room for one result of the calling thread."""
        try:
            found: tuple[ctypes.Array[ctypes.c_int32], ctypes.Array[ctypes.c_double]] = self._room.arrays
        except AttributeError:
            found = self._room.arrays = (ctypes.c_int32 * ROOM)(), (ctypes.c_double * ROOM)()
        return found


@final
class KnownBests(Chooser):
    """Reads the logits of one forward, whose best values and tokens the step has found itself."""

    def __init__(
        self,
        chooser: Chooser,
        logits: Tensor | Later,
        values: Sequence[float] | ctypes.Array[ctypes.c_float],
        tokens: Sequence[int] | ctypes.Array[ctypes.c_int32],
    ) -> None:
        self._chooser = chooser
        self._logits = logits  # held, so that no other rows come to lie there
        self._values, self._tokens = values, tokens

    def best(self, rows: Tensor) -> tuple[list[float], list[int]] | None:
        count, width = 1 if rows.ndim == 1 else len(rows), rows.shape[-1]
        if isinstance(self._logits, Later):
            self._logits = self._logits.make()
        logits = self._logits
        first, rest = divmod(rows.data_ptr() - logits.data_ptr(), 4 * width or 1)
        whole = width == logits.shape[1] and rows.dtype is torch.float32 and rows.is_contiguous()
        if not whole or rest or not 0 <= first <= len(logits) - count:
            return self._chooser.best(rows)
        return list(self._values[first : first + count]), list(self._tokens[first : first + count])

    def filtered(self, row: Tensor, sampling: Sampling) -> Law | None:
        return self._chooser.filtered(row, sampling)


def _readable(rows: Tensor) -> bool:
    return rows.dtype is torch.float32 and rows.stride(-1) == 1 and rows.numel() > 0
