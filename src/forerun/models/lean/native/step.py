"""The native step: packed requests to addresses, one call, and the rows that come of it.

All weights stay tensors of the decoder; native code is told where they are and keeps nothing but its workspace.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from threading import Lock
from time import perf_counter
from typing import final
from weakref import finalize

import torch
from torch import Tensor

from ....core.forward import Later, Rows
from ....errors import UnsupportedModel
from ...packed.forward import Packed
from ...packed.plan import LayerPlan
from ...packed.request import Request
from ...packed.runner import gather
from ..build import Decoder
from ..layers import Layer, Norm
from ..linear import Linear
from ..rope import Rotation
from ..shape import ACTIVATIONS, Shape
from .alone import all_laws, goes_alone
from .chains import Chains
from .choice import KnownBests, NativeChooser
from .library import Library, check
from .matrix import NativeMatrix
from .prepared import Prepared, Turns, addresses
from .store import BlockStore
from .views import LayerView, MatrixView, ModelView, PartView

MOST_CALLS = 64  # plans whose calls are kept, of a search for skip sets, say
NAMES = tuple(ACTIVATIONS)
assert NAMES == ("silu", "gelu_pytorch_tanh"), "forward.h knows these two"


@final
class NativeStep:
    """Forwards of one model. terms: activations are held in as many terms of 8 bits, 1 or 2. half: new sequences hold keys
    and values in bfloat16 and not in float32.

    Threads may share it; one forward runs at a time.
    """

    def __init__(
        self,
        library: Library,
        shape: Shape,
        rotation: Rotation,
        decoder: Decoder,
        terms: int = 2,
        half: bool = False,
    ) -> None:
        if terms not in (1, 2):
            raise ValueError(f"activations are held in 1 or 2 terms of 8 bits, got {terms}")
        self.library = library
        self.terms = terms
        self.chooser = NativeChooser(library)
        self.half = half
        self._shape = shape
        self._rotation = rotation
        self._decoder = decoder
        self._ropes = tuple(dict.fromkeys(shape.ropes))
        self._models: dict[str, tuple[ModelView, Sequence[Layer]]] = {}
        self._calls: dict[tuple[LayerPlan, frozenset[int]], Prepared] = {}
        self._last: tuple[LayerPlan, frozenset[int], Prepared] | None = None
        self._turned: Turns | None = None
        self._lock = Lock()
        self._workspace = library.functions.forerun_workspace()
        if not self._workspace:
            raise MemoryError("there is no memory for the native step's workspace")
        finalize(self, library.functions.forerun_release, self._workspace)
        self.hold("", decoder.layers)

    def new_store(self, capacity: int) -> BlockStore:
        """For a sequence that this step runs."""
        shape = self._shape
        return BlockStore(shape.num_layers, shape.kv_heads, shape.head_dim, capacity, self.half)

    def hold(self, weights: str, layers: Sequence[Layer]) -> None:
        """Run plans that name these weights with these layers."""
        shape, decoder = self._shape, self._decoder
        views = (LayerView * len(layers))(*(self._layer(layer) for layer in layers))
        mlp = layers[0].down.view.columns if isinstance(layers[0].down, NativeMatrix) else 0
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
        if fusion := decoder.fusion:
            model.fuse = matrix(fusion.product, shape.width * (1 + fusion.with_tokens), shape.width)
            model.state_norm = _vector(fusion.norm, shape.width)
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
        """What LeanRunner.execute gives. heads: the restricted ones, by the names that plans give."""
        if len(requests) == 1 and goes_alone(requests[0]):
            return [self._alone(requests[0], heads)]
        parts = [request.part for request in requests]
        held = [_part(request, self._store_of(request), self._shape.width) for request in requests]
        views = (PartView * len(held))(*(view for view, _ in held))
        tokens = (ctypes.c_int32 * sum(part.n for part in parts))(*(t for request in requests for t in request.tokens))
        wanted = _wanted(requests)
        further = sum(request.further for request in requests)
        longest = max(request.part.committed + max(request.part.depths) + request.further for request in requests) + 1
        turned = self._turns(longest)
        with self._lock:
            prepared = self._prepared(requests[0], heads)
            rows = len(wanted) + further
            logits, hidden = prepared.logits.take(rows), prepared.hidden.take(rows)
            tapped = [torch.empty(len(tokens) + further, self._shape.width) for _ in prepared.taps]
            states = addresses(tapped)
            call = prepared.call
            call.parts = views
            call.num_parts, call.rows, call.num_wanted = len(parts), len(tokens), len(wanted)
            call.tokens, call.wanted = ctypes.addressof(tokens), ctypes.addressof(wanted)
            call.turns, call.tapped = turned.address, ctypes.addressof(states)
            call.logits, call.hidden = logits.data_ptr(), hidden.data_ptr()
            values, best = (ctypes.c_float * len(wanted))(), (ctypes.c_int32 * len(wanted))()
            call.best_values, call.best_tokens = ctypes.addressof(values), ctypes.addressof(best)
            call.terms = requests[0].plan.activations // 8 or self.terms
            call.threads = torch.get_num_threads()
            chains = Chains(requests) if requests[0].chain else None
            begun = perf_counter()
            if chains is None:
                check(self.library.functions.forerun_forward(call, self._workspace))
            else:
                check(self.library.functions.forerun_chain(call, chains.view, self._workspace))
            native = perf_counter() - begun
        taps = dict(zip(prepared.taps, tapped, strict=True))
        if chains is not None:
            return chains.rows(logits, hidden, taps, requests, native, self.chooser)
        chooser = KnownBests(self.chooser, logits, values, best)
        return gather(hidden, logits, Packed(parts, hidden=taps), requests, native, chooser)

    def _alone(self, request: Request, heads: dict[str, tuple[Tensor, Linear]]) -> Rows:
        """The rows of one request that goes_alone."""
        store, count = self._store_of(request), request.part.n
        turned = self._turns(request.part.committed + count)
        with self._lock:
            prepared = self._prepared(request, heads)
            alone = prepared.alone
            alone.fill(request, store)
            call = alone.call
            logits, call.logits = prepared.logits.lend(count)
            hidden, call.hidden = prepared.hidden.lend(count)
            call.turns = turned.address
            call.terms = request.plan.activations // 8 or self.terms
            call.threads = torch.get_num_threads()
            begun = perf_counter()
            check(self.library.functions.forerun_forward(call, self._workspace))
            native = perf_counter() - begun
            values, best = alone.best(count)
        row, state = Later(partial(torch.from_numpy, logits)), Later(partial(torch.from_numpy, hidden))
        chooser = KnownBests(self.chooser, row, values, best)
        return Rows(row, state, native=native, chooser=chooser, best=best if all_laws(values) else ())

    def _turns(self, length: int) -> Turns:
        """Tables up to this position, to be held until the call is over: another thread may make longer ones meanwhile."""
        turned = self._turned
        if turned is None or turned.length < length:
            turned = self._turned = Turns([self._rotation.table(rope, length) for rope in self._ropes])
        return turned

    def _store_of(self, request: Request) -> BlockStore:
        """Raises UnsupportedModel where it is none of this step's."""
        store, shape = request.part.store, self._shape
        if not isinstance(store, BlockStore) or store.form != (shape.num_layers, shape.kv_heads, shape.head_dim):
            raise UnsupportedModel("this sequence was made for another runner; make it with the one that runs it")
        return store

    def _prepared(self, request: Request, heads: dict[str, tuple[Tensor, Linear]]) -> Prepared:
        """The call of this request's plan and taps, of which few are in use at a time."""
        plan, taps = request.plan, request.taps
        if self._last is not None and self._last[0] is plan and self._last[1] == taps:
            return self._last[2]
        found = self._calls.get((plan, taps))
        if found is None:
            if len(self._calls) >= MOST_CALLS:
                self._calls.clear()
            model, _ = self._models[plan.weights]
            ids, head = heads.get(plan.head, (None, self._decoder.head))
            view = matrix(head, self._shape.width)
            found = self._calls[plan, taps] = Prepared(model, plan, sorted(taps), view, ids)
        self._last = plan, taps, found
        return found


def matrix(linear: Linear, columns: int, rows: int | None = None) -> MatrixView:
    """Where a matrix lies. Raises ValueError unless it has this form."""
    if not isinstance(linear, NativeMatrix):
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


def _part(request: Request, store: BlockStore, width: int) -> tuple[PartView, object]:
    """A request's part, and what must stay as long as its view."""
    part = request.part
    count = part.first + part.n
    keys, values = store.reserve(part.committed + count + request.further)
    depths = (ctypes.c_int32 * (count + request.further))(*part.depths, *range(count, count + request.further))
    ancestors = None if part.ancestors is None else part.ancestors.contiguous()
    entry = None if part.entry is None else part.entry.float().contiguous()
    if ancestors is not None and (ancestors.shape != (part.n, count) or ancestors.dtype != torch.bool):
        raise ValueError(f"ancestors must be bool [{part.n}, {count}], got {ancestors.dtype} {tuple(ancestors.shape)}")
    if entry is not None and entry.shape != (part.resumed, width):
        raise ValueError(f"entry must be [{part.resumed}, {width}], got {tuple(entry.shape)}")
    view = PartView(
        *(keys, values, ctypes.addressof(depths)),
        *(None if tensor is None else tensor.data_ptr() for tensor in (ancestors, entry)),
        store.capacity,
        *(part.committed, part.first, part.n, part.resumed, part.enter, store.half),
    )
    return view, (depths, ancestors, entry)
