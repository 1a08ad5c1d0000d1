"""Attention of the lean decoder: each part's rows over its own keys and values.

The heads that share a key form the rows of one matrix product. Everything that doesn't change from layer to layer (views
of the store, masks) is made once for a forward. Slots are read in multiples of ALIGN and at least FEW rows at a time: with
those, float32 products give a row the same bits whatever stands beside it, so a verified row equals a row decoded alone.
"""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UnsupportedModel
from .joint_store import JointStore
from .lean_shape import Shape
from .mask import Pattern, visible
from .packed import Part

ALIGN = 16
FEW = 4

# From this many rows on, torch's fused attention beats three products.
FUSED_ROWS = 32


@final
class Span:
    """The rows of one part that take part in a stretch of layers, at `rows` among those of the whole forward."""

    def __init__(self, shape: Shape, part: Part, idle: int, offset: int, device: torch.device) -> None:
        if not isinstance(part.store, JointStore):
            raise UnsupportedModel("this sequence was made for another runner; make it with the lean runner")
        self.n = part.n - idle
        self.rows = slice(offset, offset + self.n)
        self._shape = shape
        self._part = part
        self._device = device
        self._end = part.committed + part.first + part.n
        self._length = -(-self._end // ALIGN) * ALIGN
        self._new, self._keys, self._values = part.store.views(self._end - self.n, self._end, self._length, device)
        self._masks: dict[Pattern, Tensor | None] = {}

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        """heads [n, all heads, head_dim], rotated: keep keys and values, give [n, heads * head_dim]."""
        shape, n = self._shape, self.n
        queries, group, width = shape.heads, shape.group, shape.head_dim
        self._new[layer].copy_(heads.narrow(1, queries, 2 * shape.kv_heads))
        mask = self._mask(shape.patterns[layer])
        if n >= FUSED_ROWS:
            return self._fused(layer, heads, mask)
        if n == 1:
            # rows beyond the group are other heads': they are computed and not read
            count = max(group, FEW) if shape.kv_heads > 1 else group
            query = heads.as_strided((shape.kv_heads, count, width), (group * width, width, 1), heads.storage_offset())
        else:
            query = heads.narrow(1, 0, queries).view(n, shape.kv_heads, group, width).transpose(0, 1)
            query = query.reshape(shape.kv_heads, n * group, width)
        keys = self._keys[layer]
        scores = torch.bmm(query, keys) if mask is None else torch.baddbmm(mask, query, keys)
        mixed = torch.bmm(torch.softmax(scores, -1), self._values[layer])
        if n == 1:
            return mixed.narrow(1, 0, group).reshape(1, queries * width)
        return mixed.view(shape.kv_heads, n, group, width).transpose(0, 1).reshape(n, queries * width)

    def _fused(self, layer: int, heads: Tensor, mask: Tensor | None) -> Tensor:
        query = heads.narrow(1, 0, self._shape.heads).transpose(0, 1)[None]
        keys, values = self._keys[layer].mT[None], self._values[layer][None]
        mask = None if mask is None else mask[0]
        mixed = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=1.0, enable_gqa=self._shape.group > 1
        )
        return mixed[0].transpose(0, 1).reshape(self.n, -1)

    def _mask(self, pattern: Pattern) -> Tensor | None:
        """0 or -inf, [1, n * group or 1, slots]; None if every row sees every slot."""
        if pattern not in self._masks:
            self._masks[pattern] = self._make_mask(pattern)
        return self._masks[pattern]

    def _make_mask(self, pattern: Pattern) -> Tensor | None:
        part = self._part
        seen = visible(pattern, part.committed, part.depths, self.n, part.ancestors)
        if seen is None and self._end == self._length:
            return None
        mask = torch.full((self.n, self._length), -torch.inf)
        if seen is None:
            mask[:, : self._end] = 0
        else:
            mask[:, : self._end].masked_fill_(seen, 0)
        if 1 < self.n < FUSED_ROWS:
            mask = mask.repeat_interleave(self._shape.group, 0)
        return mask.to(self._device)[None]
