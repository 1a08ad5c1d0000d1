"""Decoders with their own attention code, a cache that they ask for keys, and an additive mask: Falcon, XGLM, GPT-Neo.

The cache that such a model gets puts each part's keys and values into the part's own store, and returns those of all parts,
one after the other. The mask separates the parts, so packing many texts costs time.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedConfig

from ...errors import UnsupportedModel
from .forward import Packed
from .mask import Pattern

# wider than any text; a view of one number
_WIDE = 1 << 24


@final
class PackedCache(Cache):  # type: ignore[misc]
    """Replaces the cache for one packed forward, and passes that forward to the layers."""

    def __init__(self, packed: Packed) -> None:
        super().__init__(layers=[])
        self.packed = packed

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """The keys and values [1, heads, slots, width] of all parts that take part in the layer, these written."""
        if layer_idx in self.packed.layers_seen:
            raise UnsupportedModel(f"layer {layer_idx} attends twice, and has room for the keys of one attention")
        self.packed.layers_seen.add(layer_idx)
        held: list[tuple[Tensor, Tensor]] = []
        offset = 0
        for part in self.packed.parts:
            idle = part.idle(layer_idx)
            rows = slice(offset, offset + part.n - idle)
            offset = rows.stop
            if rows.start < rows.stop:
                slot = part.committed + part.first + idle
                held.append(part.store.write(layer_idx, slot, keys[0, :, rows], values[0, :, rows]))
        return torch.cat([one for one, _ in held], 1)[None], torch.cat([one for _, one in held], 1)[None]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0


def attends_by_itself(layer: nn.Module) -> bool:
    """Whether no part of a decoder layer uses transformers' attention interface."""
    homes = {type(module).__module__ for module in layer.modules()}
    return not any("ALL_ATTENTION_FUNCTIONS" in vars(sys.modules[home]) for home in homes)


def added_mask(packed: Packed, layer: int, pattern: Pattern, like: Tensor) -> Tensor:
    """[1, 1, rows, slots] of a layer's rows and of what PackedCache gives there, the lowest number where a row can't see."""
    seen: list[Tensor] = []
    for part in packed.parts:
        idle = part.idle(layer)
        if idle < part.n:
            bias = part.bias(pattern, idle, like)
            every = like.new_ones(part.n - idle, part.committed + len(part.depths))
            seen.append(every if bias is None else (bias == 0).to(like.dtype))
    unseen = torch.block_diag(*seen) == 0
    return torch.zeros_like(unseen, dtype=like.dtype).masked_fill_(unseen, torch.finfo(like.dtype).min)[None, None]


def opened_attention(layer: nn.Module, implementation: str) -> Pattern:
    """Prepare a layer's attention for packed rows; returns the pattern of its own mask buffer, causal if it has none.

    Such a buffer is indexed by rows, so it is made to hide nothing. implementation is the one that the model was loaded
    with, which its modules keep: only the masks are forerun's. Raises UnsupportedModel on a buffer that is neither causal
    nor a window.
    """
    pattern = Pattern()
    for module in layer.modules():
        config = getattr(module, "config", None)
        if isinstance(config, PreTrainedConfig):
            own = copy.copy(config)
            own._attn_implementation = implementation
            module.config = own
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.dtype == torch.bool and buffer.ndim == 4 and buffer.shape[-1] == buffer.shape[-2]:
                pattern = _pattern_of(buffer[0, 0], type(module).__name__)
                module._buffers[name] = buffer.new_ones(1, 1, 1, 1).expand(1, 1, _WIDE, _WIDE)
    return pattern


def carried(given: Iterable[Any]) -> Packed | None:
    """The packed forward that comes with a layer's cache, if one of the layer's arguments is such."""
    return next((value.packed for value in given if isinstance(value, PackedCache)), None)


def _pattern_of(seen: Tensor, name: str) -> Pattern:
    width = int(seen[-1].sum())
    pattern = Pattern() if width == len(seen) else Pattern(window=width)
    places = torch.arange(len(seen), device=seen.device)
    if not torch.equal(seen, pattern.sees(places[:, None], places[None])):
        raise UnsupportedModel(f"{name} has a mask of its own that is neither causal nor a window")
    return pattern
