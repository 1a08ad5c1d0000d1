"""The native step: packed requests to addresses, one call, and the rows that come of it.

All weights stay tensors of the decoder; native code is told where they are and keeps nothing but its workspace.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from threading import Lock
from typing import final
from weakref import finalize

import torch
from torch import Tensor

from ....core.forward import Rows
from ....errors import UnsupportedModel
from ...packed.forward import Packed, Part
from ...packed.plan import LayerPlan
from ...packed.request import Request
from ...packed.runner import gather
from ..build import Decoder
from ..layers import Layer, Norm
from ..linear import Linear
from ..rope import Rotation
from ..shape import ACTIVATIONS, Shape
from .library import Library, check
from .matrix import Repacked
from .store import BlockStore
from .views import CallView, LayerView, MatrixView, ModelView, PartView

NAMES = tuple(ACTIVATIONS)
assert NAMES == ("silu", "gelu_pytorch_tanh"), "forward.h knows these two"


@final
class NativeStep:
    """Forwards of one model. terms: activations are held in as many terms of 8 bits, 1 or 2.

    Threads may share it; one forward runs at a time.
    """

    def __init__(self, library: Library, shape: Shape, rotation: Rotation, decoder: Decoder, terms: int = 2) -> None:
        if terms not in (1, 2):
            raise ValueError(f"activations are held in 1 or 2 terms of 8 bits, got {terms}")
        self.library = library
        self.terms = terms
        self._shape = shape
        self._rotation = rotation
        self._decoder = decoder
        self._ropes = tuple(dict.fromkeys(shape.ropes))
        self._models: dict[str, tuple[ModelView, Sequence[Layer]]] = {}
        self._lock = Lock()
        self._workspace = library.functions.forerun_workspace()
        if not self._workspace:
            raise MemoryError("there is no memory for the native step's workspace")
        finalize(self, library.functions.forerun_release, self._workspace)
        self.hold("", decoder.layers)

    def hold(self, weights: str, layers: Sequence[Layer]) -> None:
        """Run plans that name these weights with these layers."""
        shape, decoder = self._shape, self._decoder
        views = (LayerView * len(layers))(*(self._layer(layer) for layer in layers))
        mlp = layers[0].down.view.columns if isinstance(layers[0].down, Repacked) else 0
        model = ModelView(
            *(shape.num_layers, shape.width, shape.heads, shape.kv_heads, shape.head_dim, mlp, shape.vocab_size),
            NAMES.index(next(name for name, own in ACTIVATIONS.items() if own is shape.activation)),
            *(shape.eps, shape.embedding_scale, shape.residual_scale, shape.logit_scale),
            matrix(decoder.embedding, shape.width),
            _vector(decoder.final_norm, shape.width),
            views,
        )
        model.vocab = decoder.embedding.rows
        matrix(decoder.head, shape.width, model.vocab)
        self._models[weights] = model, layers

    def _layer(self, layer: Layer) -> LayerView:
        shape = self._shape
        width, inner = shape.width, shape.heads * shape.head_dim
        view = LayerView(
            matrix(layer.qkv, width, shape.all_heads * shape.head_dim),
            matrix(layer.out, inner, width),
            matrix(layer.gate_up, width),
            matrix(layer.down, layer.gate_up.rows // 2, width),
            *(_vector(norm, width) for norm in (layer.before_attention, layer.after_attention)),
            *(_vector(norm, width) for norm in (layer.before_mlp, layer.after_mlp)),
        )
        if layer.head_norms:
            first, *second = layer.head_norms
            view.norm_each_head = not second
            view.query_norm = first.weight.data_ptr()
            view.key_norm = second[0].weight.data_ptr() if second else view.query_norm + 4 * inner
        view.window = shape.patterns[layer.index].window or 0
        view.rope = self._ropes.index(shape.ropes[layer.index])
        return view

    def execute(self, requests: Sequence[Request], heads: dict[str, tuple[Tensor, Linear]]) -> list[Rows]:
        """What LeanRunner.execute gives. heads: the restricted ones that plans may name."""
        plan = requests[0].plan
        packed = Packed([request.part for request in requests], plan, requests[0].taps)
        taps = sorted(packed.taps)
        rows, width = packed.num_rows, self._shape.width
        tokens = (ctypes.c_int32 * rows)(*(token for request in requests for token in request.tokens))
        wanted = _wanted(requests)
        model, _ = self._models[plan.weights]
        ids, head = heads[plan.head] if plan.head else (None, self._decoder.head)
        logits = torch.empty(len(wanted), model.vocab)
        hidden = torch.empty(len(wanted), width)
        packed.hidden.update((layer, torch.empty(rows, width)) for layer in taps)
        held = [_part(part, self._shape) for part in packed.parts]
        attention, mlp = (_skips(left_out, self._shape.num_layers) for left_out in (plan.attention, plan.mlp))
        longest = max(part.committed + max(part.depths) for part in packed.parts) + 1
        # held until the call is over: another thread may make longer ones meanwhile
        tables = [self._rotation.table(rope, longest) for rope in self._ropes]
        tap_layers = (ctypes.c_int32 * len(taps))(*taps)
        tapped, turns = _addresses([packed.hidden[layer] for layer in taps]), _addresses(tables)
        call = CallView(
            ctypes.pointer(model),
            (PartView * len(held))(*(view for view, _ in held)),
            *(ctypes.addressof(array) for array in (tokens, attention, mlp, wanted, tap_layers, tapped, turns)),
            ctypes.pointer(matrix(head, width)),
            None if ids is None else ids.data_ptr(),
            *(logits.data_ptr(), hidden.data_ptr()),
            *(len(held), rows, _end(plan, self._shape), len(wanted), len(taps), self.terms, torch.get_num_threads()),
        )
        with self._lock:
            check(self.library.functions.forerun_forward(ctypes.byref(call), self._workspace))
        del tables
        return gather(hidden, logits, packed, requests)


def matrix(linear: Linear, columns: int, rows: int | None = None) -> MatrixView:
    """Where a matrix lies. Raises ValueError unless it has this form."""
    if not isinstance(linear, Repacked):
        raise UnsupportedModel("the native step runs weights that were packed for it")
    view = linear.view
    if view.columns != columns or rows not in (None, view.features):
        raise ValueError(f"a matrix is {view.features} x {view.columns} where {rows or 'any'} x {columns} is expected")
    return view


def _vector(norm: Norm | None, width: int) -> int | None:
    if norm is None:
        return None
    if norm.weight.shape != (width,) or norm.weight.dtype != torch.float32 or not norm.weight.is_contiguous():
        raise ValueError(f"a norm's weight is not {width} contiguous float32 numbers")
    address: int = norm.weight.data_ptr()
    return address


def _wanted(requests: Sequence[Request]) -> ctypes.Array[ctypes.c_int32]:
    """The flat rows that the head reads."""
    wanted: list[int] = []
    end = 0
    for request in requests:
        end += request.part.n
        wanted += range(end - request.want, end)
    return (ctypes.c_int32 * len(wanted))(*wanted)


def _part(part: Part, shape: Shape) -> tuple[PartView, object]:
    """A part's view, and what must stay as long as it."""
    store = part.store
    if not isinstance(store, BlockStore) or store.form != (shape.num_layers, shape.kv_heads, shape.head_dim):
        raise UnsupportedModel("this sequence was made for another runner; make it with the one that runs it")
    count = part.first + part.n
    keys, values = store.reserve(part.committed + count)
    depths = (ctypes.c_int32 * count)(*part.depths)
    ancestors = None if part.ancestors is None else part.ancestors.contiguous()
    entry = None if part.entry is None else part.entry.float().contiguous()
    if ancestors is not None and (ancestors.shape != (part.n, count) or ancestors.dtype != torch.bool):
        raise ValueError(f"ancestors must be bool [{part.n}, {count}], got {ancestors.dtype} {tuple(ancestors.shape)}")
    if entry is not None and entry.shape != (part.resumed, shape.width):
        raise ValueError(f"entry must be [{part.resumed}, {shape.width}], got {tuple(entry.shape)}")
    view = PartView(
        *(keys, values, ctypes.addressof(depths)),
        *(None if tensor is None else tensor.data_ptr() for tensor in (ancestors, entry)),
        store.capacity,
        *(part.committed, part.first, part.n, part.resumed, part.enter, store.half),
    )
    return view, (depths, ancestors, entry)


def _skips(left_out: frozenset[int], layers: int) -> ctypes.Array[ctypes.c_uint8]:
    return (ctypes.c_uint8 * layers)(*(layer in left_out for layer in range(layers)) if left_out else ())


def _addresses(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def _end(plan: LayerPlan, shape: Shape) -> int:
    return shape.num_layers if plan.exit_layer is None else plan.exit_layer
