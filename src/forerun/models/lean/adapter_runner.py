"""A runner for an exit adapter: a decoder of a few layers that reads another model's states beside its tokens.

To sequences and drivers it is a runner like any other: its rows have keys and values, are packed with those of other
requests, committed and dropped. Its last states stand for the base's, and the base's head reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

import torch
from torch import Tensor
from transformers import LlamaConfig

from ...core.forward import Rows
from ...errors import InvalidModelFile, UnsupportedModel, UnsupportedOption
from ..files.adapter import AdapterFile, AdapterShape
from ..packed.forward import Packed, Part
from ..packed.plan import FULL, LayerPlan
from ..packed.request import Request
from ..packed.runner import Runner, gather, layout
from ..packed.store import Store
from .attention import Stage
from .build import Decoder, Source, layer_of, row_order
from .fusion import Fusion
from .joint_store import JointStore
from .layers import Norm
from .linear import make_linear
from .native.applies import native_kernels
from .native.library import Library
from .native.step import NativeStep
from .rope import Rotation
from .runner import LeanRunner, kernels_of
from .shape import Shape, shape_of
from .tables_runner import TablesRunner
from .weights import check_weights


@final
class AdapterRunner(Runner):
    """head: the base's restricted head that it drafts with, "" for the whole one. weights: as for a model.

    It runs natively where its base does and its own weights can.
    """

    def __init__(self, adapter: AdapterFile, base: Runner, head: str = "", weights: str = "") -> None:
        check_weights(weights)
        config = _config(adapter.shape)
        self.adapter = adapter.shape
        self.num_layers = adapter.shape.depth
        self.vocab_size, self.max_length = base.vocab_size, base.max_length
        self.device, self.dtype = base.device, base.dtype
        self.name = f"exit adapter of {base.name}"
        self._base, self._head = base, head
        self._shape = shape_of(config)
        self._rotation = Rotation(config, self._shape, self.device)
        native = native_adapter(self._shape, base, weights)
        kernels = kernels_of(native)
        source = _Weights(adapter.weights, base)
        order = row_order(self._shape, self._rotation.rotary_dim, self.device)
        norm = Norm(source.take("state_norm.weight"), self._shape.eps)
        product = make_linear([source.take("fuse.weight")], weights, kernels=kernels)
        self._fusion = Fusion(norm, product, adapter.shape.inputs == "state+token")
        self._layers = tuple(
            layer_of(source, self._shape, index, order, weights, kernels) for index in range(self.num_layers)
        )
        self._norm = Norm(source.take("model.norm.weight"), self._shape.eps)
        if left := source.left():
            raise InvalidModelFile(f"the exit adapter holds a weight {left[0]} that has no place in it")
        self._step: NativeStep | None = None
        if isinstance(native, Library) and isinstance(base, LeanRunner):
            self.kernels, self.same_bits, self.chains = base.kernels, True, True
            self._open_step(native, base)
        else:
            self.kernels_reason = str(native)

    def _open_step(self, native: Library, base: LeanRunner) -> None:
        """Run natively, with the base's own embedding and head."""
        own = base.decoder
        decoder = Decoder(own.embedding, self._layers, self._norm, own.head, self._fusion)
        shape = replace(self._shape, logit_scale=base.logit_scale)
        self._step = NativeStep(native, shape, self._rotation, decoder)
        self._heads = {"": base.restricted(self._head)} if self._head else {}

    @property
    def version(self) -> int:
        """Its keys and values come of the base's states."""
        return self._base.version

    def new_store(self, capacity: int) -> Store:
        if self._step is not None:
            return self._step.new_store(capacity)
        return JointStore(self.num_layers, self._shape.kv_heads, self._shape.head_dim, capacity)

    def add_weights(self, name: str) -> None:
        raise UnsupportedOption("an exit adapter holds its weights in one form; open it with another one")

    def add_head(self, tokens: Sequence[int]) -> str:
        raise UnsupportedOption("an exit adapter reads with its base's head; restrict that one")

    def embed(self, ids: Tensor) -> Tensor:
        return self._base.embed(ids)

    def head(self, hidden: Tensor, name: str = "") -> Tensor:
        return self._base.head(hidden, name)

    def check_plan(self, plan: LayerPlan) -> None:
        if plan != FULL:
            raise UnsupportedModel("an exit adapter runs whole; it has no plans")

    def execute(self, requests: Sequence[Request]) -> list[Rows]:
        for request in requests:
            check_states(request.part, self._shape.width)
        if self._step is not None:
            for request in requests:
                request.part.entry = request.part.states
            return self._step.execute(requests, self._heads)
        return self._execute(requests)

    @torch.inference_mode()
    def _execute(self, requests: Sequence[Request]) -> list[Rows]:
        packed = Packed([request.part for request in requests], FULL, requests[0].taps)
        ids, positions, wanted = layout(requests, self.device)
        x = self._fusion(torch.cat([part.states for part in packed.parts if part.states is not None]), ids, self.embed)
        longest = max(part.committed + max(part.depths) for part in packed.parts) + 1
        factors = self._rotation.factors("", positions, longest)
        stage = Stage(self._shape, packed.parts, 0, self._layers[0].out.dtype, self.device)
        for layer in self._layers:
            layer.attend(x, stage, factors)
            layer.feed(x, stage)
        packed.hidden.update(dict.fromkeys(packed.taps, x))
        hidden = self._norm(x if len(wanted) == len(ids) else x[wanted])
        return gather(hidden, self._base.head(hidden, self._head), packed, requests)


def native_adapter(shape: Shape, base: Runner, weights: str) -> Library | str:
    """The kernels for an adapter of this base, or the reason why it runs on torch's operations."""
    if not isinstance(base, LeanRunner | TablesRunner) or not isinstance(base.native, Library):
        return "its base runs on torch's operations"
    found = native_kernels(shape, weights, frozenset({base.dtype}), base.device)
    # whatever the environment says by now
    return base.native if isinstance(found, Library) else found


def check_states(part: Part, width: int) -> None:
    """Raise ValueError unless each row has a state of the base beside its token."""
    if part.states is None:
        raise ValueError("an exit adapter reads states beside tokens; hand them to the sequence")
    if part.states.shape != (part.n, width):
        raise ValueError(f"states must be [{part.n}, {width}] for {part.n} tokens, got {list(part.states.shape)}")


@final
class _Weights(Source):
    """An adapter's tensors, in the base's type and place."""

    def __init__(self, weights: Mapping[str, Tensor], base: Runner) -> None:
        self._weights = dict(weights)
        self._base = base

    def has(self, name: str) -> bool:
        return name in self._weights

    def take(self, name: str) -> Tensor:
        if name not in self._weights:
            raise InvalidModelFile(f"the exit adapter lacks the weight {name}")
        return self._weights.pop(name).to(self._base.device, self._base.dtype)

    def dtypes(self) -> frozenset[torch.dtype]:
        return frozenset({self._base.dtype})

    def left(self) -> list[str]:
        return sorted(self._weights)


def _config(shape: AdapterShape) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.depth,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rms_norm_eps=shape.eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        vocab_size=1,
        bos_token_id=None,
        eos_token_id=None,
    )
