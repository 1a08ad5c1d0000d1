"""What every forward of one plan hands over alike, made once: only its rows are written anew."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import final

import numpy as np
from torch import Tensor

from ...packed.plan import LayerPlan
from .alone import Alone
from .outputs import Outputs
from .views import CallView, MatrixView, ModelView


@final
class Prepared:
    """A call under a plan with taps, as far as it stays the same. It is filled and run by one thread at a time.

    logits, hidden: room for the rows of the head; kept holds what the call points to. alone: the same for one chain.
    """

    def __init__(
        self, model: ModelView, plan: LayerPlan, taps: Sequence[int], head: MatrixView, ids: Tensor | None
    ) -> None:
        layers = model.layers
        self.taps = tuple(taps)
        attention, mlp = (_skips(left_out, layers) for left_out in (plan.attention, plan.mlp))
        tap_layers = (ctypes.c_int32 * len(taps))(*taps)
        self.call = call = CallView()
        call.model = ctypes.pointer(model)
        call.skips_attention, call.skips_mlp = ctypes.addressof(attention), ctypes.addressof(mlp)
        call.taps, call.num_taps = ctypes.addressof(tap_layers), len(taps)
        call.head = ctypes.pointer(head)
        call.ids = None if ids is None else ids.data_ptr()
        call.end = layers if plan.exit_layer is None else plan.exit_layer
        self.logits = Outputs(model.vocab, None if ids is None else -np.inf)
        self.hidden = Outputs(model.width)
        self._kept = attention, mlp, tap_layers, ids
        self.alone = Alone(call)


@final
class Turns:
    """The tables of all rotations of a model, which hold positions below `length`, and where they lie."""

    def __init__(self, tables: Sequence[Tensor]) -> None:
        self.length = min(len(table) for table in tables)
        self.addresses = addresses(tables)
        self.address = ctypes.addressof(self.addresses)
        self._tables = tables


def addresses(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def _skips(left_out: frozenset[int], layers: int) -> ctypes.Array[ctypes.c_uint8]:
    return (ctypes.c_uint8 * layers)(*(layer in left_out for layer in range(layers)) if left_out else ())
