"""A runner for an exit adapter: a decoder of a few layers that reads another model's states beside its tokens.

To sequences and drivers it is a runner like any other: its rows have keys and values, are packed with those of other
requests, committed and dropped. Its last states stand for the base's, and the base's head reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor
from transformers import LlamaConfig

from ...core.forward import Rows
from ...errors import InvalidModelFile, UnsupportedModel, UnsupportedOption
from ..files.adapter import AdapterFile, AdapterShape
from ..packed.forward import Packed
from ..packed.plan import FULL, LayerPlan
from ..packed.request import Request
from ..packed.runner import Runner, gather, layout
from ..packed.store import Store
from .attention import Stage
from .build import Source, layer_of, row_order
from .joint_store import JointStore
from .layers import Norm
from .linear import make_linear
from .rope import Rotation
from .shape import shape_of
from .weights import check_weights


@final
class AdapterRunner(Runner):
    """head: the base's restricted head that it drafts with, "" for the whole one. weights: as for a model."""

    def __init__(self, adapter: AdapterFile, base: Runner, head: str = "", weights: str = "") -> None:
        check_weights(weights)
        config = _config(adapter.shape)
        source = _Weights(adapter.weights, base)
        self.adapter = adapter.shape
        self.num_layers = adapter.shape.depth
        self.vocab_size, self.max_length = base.vocab_size, base.max_length
        self.device, self.dtype = base.device, base.dtype
        self.name = f"exit adapter of {base.name}"
        self._base, self._head = base, head
        self._shape = shape_of(config)
        self._rotation = Rotation(config, self._shape, self.device)
        order = row_order(self._shape, self._rotation.rotary_dim, self.device)
        eps = self._shape.eps
        self._state_norm = Norm(source.take("state_norm.weight"), eps)
        self._fuse = make_linear([source.take("fuse.weight")], weights)
        self._layers = [layer_of(source, self._shape, index, order, weights) for index in range(self.num_layers)]
        self._norm = Norm(source.take("model.norm.weight"), eps)
        if left := source.left():
            raise InvalidModelFile(f"the exit adapter holds a weight {left[0]} that has no place in it")

    @property
    def version(self) -> int:
        """Its keys and values come of the base's states."""
        return self._base.version

    def new_store(self, capacity: int) -> Store:
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

    @torch.inference_mode()
    def execute(self, requests: Sequence[Request]) -> list[Rows]:
        packed = Packed([request.part for request in requests], FULL, requests[0].taps)
        ids, positions, wanted = layout(requests, self.device)
        states = [part.states for part in packed.parts if part.states is not None]
        if len(states) != len(requests):
            raise ValueError("an exit adapter reads states beside tokens; hand them to the sequence")
        x = self._inputs(torch.cat(states), ids)
        longest = max(part.committed + max(part.depths) for part in packed.parts) + 1
        factors = self._rotation.factors("", positions, longest)
        stage = Stage(self._shape, packed.parts, 0, self._layers[0].out.dtype, self.device)
        for layer in self._layers:
            layer.attend(x, stage, factors)
            layer.feed(x, stage)
        packed.hidden.update(dict.fromkeys(packed.taps, x))
        hidden = self._norm(x if len(wanted) == len(ids) else x[wanted])
        return gather(hidden, self._base.head(hidden, self._head), packed, requests)

    def _inputs(self, states: Tensor, ids: Tensor) -> Tensor:
        own = self._state_norm(states.float())
        if self.adapter.inputs == "state+token":
            own = torch.cat([own, self._base.embed(ids)], 1)
        # a copy, since layers add to it in place
        return self._fuse(own).to(torch.float32, copy=True)


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
