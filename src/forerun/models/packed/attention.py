"""The attention function: every decoder that uses transformers' attention interface runs through it, unchanged.

Rows of all sequences come in flat. Each part writes its keys and values into its own store and attends there, causally or
along its tree. Other arguments of a model are handled (windows, chunks, soft caps, sinks) or refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from ...errors import UnsupportedModel
from .forward import Packed, PackedMask, Part
from .mask import Pattern, pattern_of_mask

NAME = "forerun_packed"

# What models pass along for other attention functions, and what leaves a packed forward as it is.
HARMLESS = frozenset(
    {"sliding_window", "position_ids", "cache_position", "use_cache", "output_attentions", "output_hidden_states"}
    | {"output_router_logits", "return_dict", "logits_to_keep", "num_items_in_batch", "position_embeddings"}
)


@dataclass(frozen=True, slots=True)
class Scores:
    """How a layer turns products of queries and keys into weights, apart from the mask."""

    scaling: float | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: PackedMask | None,
    *,
    packed: Packed | None = None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of query [1, heads, T, width] over each part's own store; returns [1, T, heads, width].

    packed is also passed by models that pass on all their keyword arguments; the mask holds it anyway.
    """
    name = type(module).__name__
    if not isinstance(attention_mask, PackedMask):
        raise UnsupportedModel(f"{name} doesn't hand its layer's mask to its attention function as it is")
    pattern, packed = attention_mask.pattern, attention_mask.packed
    unknown = {option for option, given in others.items() if given is not None and given is not False} - HARMLESS
    if is_causal is False:
        unknown.add("is_causal=False")
    if dropout:
        unknown.add("dropout")
    if unknown:
        raise UnsupportedModel(
            f"{name} asks for attention with {', '.join(sorted(unknown))}, which forerun doesn't know"
        )
    layer = layer_index(module)
    if layer in packed.layers_seen:
        raise UnsupportedModel(f"{name} attends twice in layer {layer}, which has room for the keys of one attention")
    packed.layers_seen.add(layer)
    scores = Scores(scaling, softcap, s_aux)
    outputs: list[Tensor] = []
    offset = 0
    for part in packed.parts:
        rows = slice(offset, offset + part.n - part.idle(layer))
        offset = rows.stop
        if rows.start < rows.stop:
            own = (query[:, :, rows], key[0, :, rows], value[0, :, rows])
            outputs.append(_attend_part(part, layer, own, pattern, scores))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2)
    return output.transpose(1, 2).contiguous(), None


def _attend_part(
    part: Part, layer: int, own: tuple[Tensor, Tensor, Tensor], pattern: Pattern, scores: Scores
) -> Tensor:
    query, key, value = own
    idle = part.idle(layer)
    keys, values = part.store.write(layer, part.committed + part.first + idle, key, value)
    bias = part.bias(pattern, idle, query)
    if scores.softcap is not None or scores.sinks is not None:
        return _weigh(query, keys, values, bias, scores)
    return F.scaled_dot_product_attention(
        query,
        keys[None],
        values[None],
        attn_mask=bias,
        scale=scores.scaling,
        enable_gqa=keys.shape[0] != query.shape[1],
    )


def _weigh(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scores: Scores) -> Tensor:
    """Attention in plain operations, for what the fused kernel can't do: soft caps and sinks."""
    groups = query.shape[1] // keys.shape[0]
    keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
    scaling = query.shape[-1] ** -0.5 if scores.scaling is None else scores.scaling
    products = query @ keys.mT[None] * scaling
    if scores.softcap is not None:
        products = torch.tanh(products / scores.softcap) * scores.softcap
    if bias is not None:
        products = products + bias
    if scores.sinks is None:
        weights = products.softmax(-1, dtype=torch.float32)
    else:
        sinks = scores.sinks.view(1, -1, 1, 1).expand(*products.shape[:3], 1).to(products.dtype)
        weights = torch.cat([products, sinks], -1).softmax(-1, dtype=torch.float32)[..., :-1]
    return weights.to(query.dtype) @ values[None]


def layer_index(module: nn.Module) -> int:
    """The layer an attention module belongs to, by the number that transformers gave it."""
    index = getattr(module, "layer_idx", None)
    if not isinstance(index, int):
        raise UnsupportedModel(f"{type(module).__name__} doesn't know which layer it belongs to")
    return index


def describe_mask(
    *,
    mask_function: Callable[..., Tensor],
    local_size: int | None = None,
    attention_mask: Tensor | None = None,
    **_: Any,
) -> Pattern:
    """The registered mask function: its result is passed to attend as the mask."""
    return pattern_of_mask(mask_function, local_size)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, describe_mask)
