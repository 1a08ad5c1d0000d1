"""From a model's parameters to the lean decoder's layers.

Parameters are taken one by one from a source that lets go of each, so that the model is never held twice. What a source
still holds at the end is something that the lean decoder would have ignored: refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from ...errors import UnsupportedModel
from .fusion import Fusion
from .layers import HeadNorm, Layer, Norm
from .linear import TORCH, Kernels, Linear, Table, make_head, make_linear, make_table
from .rope import interleaved
from .shape import Shape
from .weights import Int4Grid, Matrix, dense


class Source(ABC):
    """A model's parameters under transformers' names, each given away once.

    pairs_together: whether the components that rotate together stand side by side in query and key rows. offset: what
    norm weights lack.
    """

    pairs_together: bool = False
    offset: float = 0.0

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether a parameter is there to be taken."""

    @abstractmethod
    def take(self, name: str) -> Matrix:
        """A parameter, which the source forgets. Raises UnsupportedModel where there is none."""

    @abstractmethod
    def dtypes(self) -> frozenset[torch.dtype]:
        """The types of its matrices' floats."""

    @abstractmethod
    def left(self) -> list[str]:
        """The names that were not taken."""


@final
class ModelSource(Source):
    """The parameters of a transformers model, which is empty afterwards.

    Of a model that sees or hears as well, those of its text part alone.
    """

    def __init__(self, model: Any, offset: float) -> None:
        # tied parameters come up under their first name only
        self._parameters: dict[str, Tensor] = dict(model.named_parameters())
        if model.config.get_text_config() is not model.config:
            text = {f"model.{name}": value for name, value in model.get_decoder().named_parameters()}
            held = {id(value) for value in text.values()}
            head = {f"lm_head.{name}": value for name, value in model.get_output_embeddings().named_parameters()}
            self._parameters = text | {name: value for name, value in head.items() if id(value) not in held}
        self.offset = offset

    def has(self, name: str) -> bool:
        return name in self._parameters

    def take(self, name: str) -> Tensor:
        parameter = self._parameters.pop(name, None)
        if parameter is None:
            raise UnsupportedModel(f"the model has no parameter {name}, which the lean decoder needs")
        tensor = parameter.detach()
        parameter.data = tensor.new_empty(0)
        return tensor

    def dtypes(self) -> frozenset[torch.dtype]:
        return frozenset(parameter.dtype for parameter in self._parameters.values() if parameter.ndim == 2)

    def left(self) -> list[str]:
        return sorted(self._parameters)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """What is held of a model. Where head and embedding are tied, head is the embedding itself, or its copy as_head.

    fusion: how rows begin that read another model's states; None where they begin as the embedding.
    """

    embedding: Table
    layers: tuple[Layer, ...]
    final_norm: Norm
    head: Linear
    fusion: Fusion | None = None

    @property
    def tables_nbytes(self) -> int:
        return self.embedding.nbytes + (0 if self.head is self.embedding else self.head.nbytes)


def build(source: Source, shape: Shape, rotary_dim: int, weights: str, kernels: Kernels = TORCH) -> Decoder:
    """Empty the source. Raises UnsupportedModel where it lacks a parameter or has one too many."""
    table = source.take("model.embed_tokens.weight")
    embedding = make_table(table, weights, kernels)
    order = None if source.pairs_together else row_order(shape, rotary_dim, embedding.device)
    layers = tuple(layer_of(source, shape, index, order, weights, kernels) for index in range(shape.num_layers))
    head = embedding.as_head()
    if source.has("lm_head.weight"):
        head = make_head(source.take("lm_head.weight"), weights, kernels)
    norm = _norm(source, shape, "model.norm.weight")
    if left := source.left():
        raise UnsupportedModel(f"the lean decoder doesn't know what {left[0]} is for ({len(left)} such parameters)")
    return Decoder(embedding, layers, norm, head)


def layer_of(
    source: Source, shape: Shape, index: int, order: Tensor | None, weights: str, kernels: Kernels = TORCH
) -> Layer:
    """One layer's parameters out of the source. order: of queries, keys and values, see lean_rope."""
    prefix = f"model.layers.{index}."

    def linear(fused: str, names: tuple[str, ...], order: Tensor | None = None) -> Linear:
        if source.has(f"{prefix}{fused}.weight"):
            names = (fused,)
        matrices = [source.take(f"{prefix}{name}.weight") for name in names]
        if fused == "mlp.gate_up_proj" and kernels.turns:
            order = in_turns(
                sum(len(part.codes if isinstance(part, Int4Grid) else part) for part in matrices), kernels.turns
            )
        bias = None
        if any(source.has(f"{prefix}{name}.bias") for name in names):
            bias = torch.cat([_vector(source, f"{prefix}{name}.bias") for name in names])
            bias = bias if order is None else bias[order]
        return make_linear(matrices, weights, bias, order, kernels)

    def norm(name: str | None) -> Norm | None:
        return None if name is None else _norm(source, shape, f"{prefix}{name}.weight")

    norms = shape.norms
    return Layer(
        index=index,
        shape=shape,
        qkv=linear("self_attn.qkv_proj", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), order),
        out=linear("self_attn.o_proj", ("self_attn.o_proj",)),
        gate_up=linear("mlp.gate_up_proj", ("mlp.gate_proj", "mlp.up_proj")),
        down=linear("mlp.down_proj", ("mlp.down_proj",)),
        before_attention=norm(norms.before_attention),
        after_attention=norm(norms.after_attention),
        before_mlp=norm(norms.before_mlp),
        after_mlp=norm(norms.after_mlp),
        head_norms=_head_norms(source, shape, f"{prefix}self_attn.", order),
    )


def _head_norms(source: Source, shape: Shape, prefix: str, order: Tensor | None) -> tuple[HeadNorm, ...]:
    """The norms of queries and keys, weights in the order of their rows."""
    if not source.has(f"{prefix}q_norm.weight"):
        return ()
    query, key = (_vector(source, f"{prefix}{name}_norm.weight") + source.offset for name in ("q", "k"))
    each, split = query.shape[0] == shape.head_dim, shape.heads * shape.head_dim
    flat = torch.cat([query.repeat(shape.heads), key.repeat(shape.kv_heads)]) if each else torch.cat([query, key])
    if order is not None:
        flat = flat[order[: flat.shape[0]]]
    if each:
        return (HeadNorm(0, flat.view(-1, shape.head_dim), shape.eps),)
    return HeadNorm(0, flat[:split], shape.eps), HeadNorm(split, flat[split:], shape.eps)


def row_order(shape: Shape, rotary_dim: int, device: torch.device) -> Tensor:
    """The order of the rows of queries, keys and values in which rotated pairs stand side by side."""
    count, width = shape.heads + shape.kv_heads, shape.head_dim
    turned = torch.arange(count)[:, None] * width + interleaved(width, rotary_dim)
    return torch.cat([turned.flatten(), torch.arange(count * width, shape.all_heads * width)]).to(device)


def in_turns(rows: int, each: int) -> Tensor:
    """The order of gates and ups in which so many rows of each take turns."""
    return torch.arange(rows).view(2, -1, each).transpose(0, 1).flatten()


def _vector(source: Source, name: str) -> Tensor:
    return dense(source.take(name)).float()


def _norm(source: Source, shape: Shape, name: str) -> Norm:
    return Norm(_vector(source, name) + source.offset, shape.eps)
