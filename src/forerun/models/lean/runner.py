"""The lean decoder: one compact forward for Llama-shaped models that forerun loaded itself.

Half of a small model's step on a CPU goes by outside the matrix products. So QKV and gate/up are one product each, the
rotation is one complex product, keys and values have their views made once a forward, the stream is updated in place, and a
layer is some twenty operations. A forward runs in stretches of layers: between two of them rows join (resume) or states are
kept (taps), within one nothing changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from ...core.forward import Rows
from ...errors import UnsupportedOption
from ..packed.forward import Packed
from ..packed.plan import LayerPlan, check_activations
from ..packed.request import Request
from ..packed.runner import Runner, gather, layout
from ..packed.store import Store
from .attention import Stage
from .build import Decoder, ModelSource, Source, build
from .joint_store import JointStore
from .layers import Layer
from .linear import TORCH, Int8, Kernels, Linear, make_head
from .native.applies import native_kernels
from .native.dense import Dense
from .native.library import Library
from .native.matrix import LANES, Repacked
from .native.room import Room
from .native.step import NativeStep
from .rope import Rotation
from .shape import Shape, shape_of
from .weights import check_weights


def kernels_of(native: Library | str) -> Kernels:
    """How matrices are held for these kernels, or for torch's operations where a reason stands in their place."""
    if not isinstance(native, Library):
        return TORCH
    room = Room(native)
    small, dense = partial(Repacked, native, room=room), partial(Dense, native, room=room)
    return Kernels(small, dense, dense, LANES, int4_tables=True)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's operations by one thread: threads of thousands of short ones would wait for each other.

    Beside a busy neighbour that takes minutes.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _has_codes(layers: Sequence[Layer]) -> bool:
    return isinstance(layers[0].qkv, Repacked)


@final
class LeanRunner(Runner):
    """weights names how matrices are held, one of weights.WEIGHTS; "" is the model's own type.

    States, keys and values are float32; dtype is that of the rows that matrix products take. native: the kernels that the
    decoder's weights were packed for, or why it runs on torch's operations. weights_file: where its weights are mapped from,
    weights_reason says why they lie in memory of its own.
    """

    weights_file: Path | None = None
    weights_reason: str = ""

    def __init__(
        self, shape: Shape, rotation: Rotation, decoder: Decoder, name: str, native: Library | str = ""
    ) -> None:
        self.num_layers = shape.num_layers
        self.vocab_size = decoder.embedding.rows
        self.max_length = shape.max_length
        self.device = decoder.embedding.device
        self.dtype = decoder.embedding.dtype
        self.name = name
        self._shape = shape
        self._rotation = rotation
        self._decoder = decoder
        self._layers: dict[str, tuple[Layer, ...]] = {"": decoder.layers}
        self._heads: dict[str, tuple[Tensor, Linear]] = {}
        self.native = native
        if isinstance(native, Library):
            self.kernels = f"native {native.level}"
            self.same_bits = self.chains = True
            self.activations = 16 if _has_codes(decoder.layers) else None
        else:
            self.kernels_reason = native
        self._kernels = kernels_of(native)
        self._step = NativeStep(native, shape, rotation, decoder) if isinstance(native, Library) else None

    @classmethod
    def from_decoder(cls, config: Any, decoder: Decoder, name: str, native: Library) -> LeanRunner:
        """A decoder whose weights are packed already, for these kernels; config is the text part's."""
        shape = shape_of(config)
        return cls(shape, Rotation(config, shape, decoder.embedding.device), decoder, name, native)

    @classmethod
    def from_model(cls, model: Any, weights: str = "", name: str = "") -> LeanRunner:
        """Take a transformers model's parameters, one by one; the model is empty afterwards.

        Raises UnsupportedModel where lean_applies says no or a parameter has no place, UnsupportedOption on weights that
        are unknown or have no kernel.
        """
        config = model.config.get_text_config()
        source = ModelSource(model, shape_of(config).norms.offset)
        name = name or str(model.config.name_or_path or type(model).__name__)
        return cls.from_source(source, config, model.device, weights, name)

    @classmethod
    def from_source(cls, source: Source, config: Any, device: torch.device, weights: str, name: str) -> LeanRunner:
        check_weights(weights)
        shape = shape_of(config)
        rotation = Rotation(config, shape, device)
        native = native_kernels(shape, weights, source.dtypes(), device)
        return cls(
            shape, rotation, build(source, shape, rotation.rotary_dim, weights, kernels_of(native)), name, native
        )

    def new_store(self, capacity: int) -> Store:
        if self._step is not None:
            return self._step.new_store(capacity)
        return JointStore(self.num_layers, self._shape.kv_heads, self._shape.head_dim, capacity)

    def check_plan(self, plan: LayerPlan) -> None:
        """Every sublayer of these families only adds to the stream, so any may be left out.

        Raises UnsupportedOption on weights or a head that were not added, and on activations where no native step runs.
        """
        for kind, name, known in (
            ("weights", plan.weights, self._layers),
            ("head", plan.head, {"": None} | self._heads),
        ):
            if name not in known:
                raise UnsupportedOption(f"{self.name} holds no {kind} {name!r}; add them before a plan names them")
        if plan.activations:
            self._check_codes(plan.activations, plan.weights)

    def use_activations(self, bits: int) -> None:
        check_activations(bits)
        self._check_codes(bits)
        assert self._step is not None
        assert isinstance(self.native, Library)
        self._step.terms = bits // 8
        self.activations = bits
        self.kernels = f"native {self.native.level}" + (f", {bits}-bit activations" if bits < 16 else "")

    def _check_codes(self, bits: int, weights: str = "") -> None:
        """Raises UnsupportedOption where the rows of products aren't held in so many bits."""
        if self._step is None:
            super().use_activations(bits)
        if not _has_codes(self._layers[weights]):
            raise UnsupportedOption(
                f"{self.name} has float weights, which take rows as they are, not in {bits} bits; leave activations out, or "
                "take int8 or int4 weights"
            )

    def add_weights(self, name: str) -> None:
        check_weights(name)
        if name in self._layers:
            return
        with one_thread():
            self._layers[name] = tuple(layer.in_weights(name, self._kernels) for layer in self._decoder.layers)
        if self._step is not None:
            self._step.hold(name, self._layers[name])

    def add_head(self, tokens: Sequence[int], weights: str = "") -> str:
        """weights: the form of its rows where the whole head has floats."""
        check_weights(weights)
        ids = torch.tensor(sorted(set(tokens)), device=self.device)
        # the name is the same in another session, so that a plan tells which head it means
        name = f"of {len(ids)} tokens ({hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()[:8]})"
        name += f" in {weights}" if weights else ""
        if name not in self._heads:
            with one_thread():
                head = self._decoder.head.picked(ids)
                if weights and not isinstance(self._decoder.head, Repacked | Int8):
                    head = make_head(head.dense(), weights, self._kernels)
            self._heads[name] = ids, head
        return name

    def on(self, decoder: Decoder) -> LeanRunner:
        """The same model on another decoder, without what was added to this one."""
        return LeanRunner(self._shape, self._rotation, decoder, self.name, self.native)

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def decoder(self) -> Decoder:
        """What it holds of the model, without what was added. Decoders that read its states share its tables."""
        return self._decoder

    @property
    def logit_scale(self) -> float:
        return self._shape.logit_scale

    def restricted(self, name: str) -> tuple[Tensor, Linear]:
        """The tokens of one of add_head's heads, and their rows of the head."""
        return self._heads[name]

    @property
    def nbytes(self) -> int:
        """Memory that all matrices take."""
        sets = [layer.nbytes for layers in self._layers.values() for layer in layers]
        heads = [head.nbytes for _, head in self._heads.values()]
        return self._decoder.tables_nbytes + sum(sets) + sum(heads)

    @property
    def step_nbytes(self) -> int:
        """Bytes of weights that a whole forward of a few rows reads."""
        return self._decoder.head.nbytes + sum(layer.nbytes for layer in self._decoder.layers)

    def execute(self, requests: Sequence[Request]) -> list[Rows]:
        return self._computed(requests) if self._step is None else self._step.execute(requests, self._heads)

    @torch.inference_mode()
    def _computed(self, requests: Sequence[Request]) -> list[Rows]:
        """By torch's operations."""
        packed = Packed([request.part for request in requests], requests[0].plan, requests[0].taps)
        ids, positions, wanted = layout(requests, self.device)
        x = self._decoder.embedding.embed(ids)
        if self._shape.embedding_scale != 1:
            x.mul_(self._shape.embedding_scale)
        x = self._run(packed.bring_entries(x[None])[0], positions, packed)
        rows = x if len(wanted) == len(ids) else x[wanted]
        hidden = self._decoder.final_norm(rows)
        return gather(hidden, self.head(hidden, packed.plan.head), packed, requests)

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        return self._decoder.embedding.embed(ids)

    def _run(self, x: Tensor, positions: Tensor, packed: Packed) -> Tensor:
        """All layers of the plan, from one layer at which rows join or are kept to the next."""
        plan, taps = packed.plan, packed.taps
        end = self.num_layers if plan.exit_layer is None else plan.exit_layer
        enters = {part.enter for part in packed.parts if part.resumed}
        marks = sorted({0, end} | {layer for layer in taps | enters if layer < end})
        layers = self._layers[plan.weights]
        for first, last in pairwise(marks):
            if first in taps:
                packed.hidden[first] = x.clone()
            rows = packed.active(first)
            if rows is None:
                self._stretch(layers[first:last], x, positions, packed)
            elif rows:
                index = torch.tensor(rows, device=self.device)
                some = x[index]
                self._stretch(layers[first:last], some, positions[index], packed)
                x.index_copy_(0, index, some)
        for layer in taps:
            if layer >= end:
                packed.hidden[layer] = x
        return x

    def _stretch(self, layers: Sequence[Layer], x: Tensor, positions: Tensor, packed: Packed) -> None:
        """Layers through which the same rows go together, in place."""
        plan, shape = packed.plan, self._shape
        stage = Stage(shape, packed.parts, layers[0].index, layers[0].out.dtype, self.device)
        longest = max(part.committed + max(part.depths) for part in packed.parts) + 1
        factors = {rope: self._rotation.factors(rope, positions, longest) for rope in set(shape.ropes)}
        for layer in layers:
            if layer.index not in plan.attention:
                layer.attend(x, stage, factors[shape.ropes[layer.index]])
            if layer.index not in plan.mlp:
                layer.feed(x, stage)

    @torch.inference_mode()
    def head(self, hidden: Tensor, name: str = "") -> Tensor:
        if name:
            ids, head = self._heads[name]
            some = head(hidden).float()
            logits = some.new_full((len(hidden), self.vocab_size), -torch.inf).index_copy_(1, ids, some)
        else:
            logits = self._decoder.head(hidden).float()
        return logits if self._shape.logit_scale == 1 else logits.mul_(self._shape.logit_scale)
