"""Attention of the lean decoder: each part's rows over its own keys and values.

The heads that share a key form the rows of one matrix product. What doesn't change from layer to layer (buffers, views of
them and of the store, masks) is made once for a stretch of layers. Slots are read in multiples of ALIGN and queries come at
least FEW at a time: so a row's float32 products give nearly always the same bits whatever stands beside it, and a verified
row those of a row decoded alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import UnsupportedModel
from ..packed.forward import Part
from ..packed.mask import Pattern, visible
from .joint_store import JointStore
from .shape import Shape

ALIGN = 16
FEW = 4

# Rows of a long prompt that attend together: few enough that most of what they mask isn't computed.
BLOCK = 128


@final
class Stage:
    """Buffers for the rows that go through a stretch of layers together.

    queries, keys and values [n, all heads * head_dim] go in through `flat`, the heads' outputs come out in `mixed`
    [n, heads * head_dim] of the given type; `normed` [n, width] of that type is for what norms give.
    """

    def __init__(
        self, shape: Shape, parts: Sequence[Part], layer: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        n = sum(part.n - part.idle(layer) for part in parts)
        self.flat = torch.empty(n, shape.all_heads * shape.head_dim, device=device)
        self.mixed = torch.empty(n, shape.heads * shape.head_dim, dtype=dtype, device=device)
        self.normed = torch.empty(n, shape.width, dtype=dtype, device=device)
        self._pairs = torch.view_as_complex(self.flat.view(n, shape.all_heads, -1, 2))
        self._spans = list(self._split(shape, parts, layer))

    def _split(self, shape: Shape, parts: Sequence[Part], layer: int) -> Iterator[Span]:
        offset = 0
        for part in parts:
            if not isinstance(part.store, JointStore):
                raise UnsupportedModel("this sequence was made for another runner; make it with the one that runs it")
            part.store.reserve(part.committed + part.first + part.n + ALIGN, self.flat.device)
            for first in range(part.idle(layer), part.n, BLOCK):
                last = min(first + BLOCK, part.n)
                rows = slice(offset, offset + last - first)
                offset = rows.stop
                yield Span(shape, part, part.store, (first, last), self.flat[rows], self.mixed[rows])

    def attend(self, layer: int, factors: Tensor) -> None:
        """Turn what stands in flat, keep its keys and values, put the outputs into mixed."""
        self._pairs.mul_(factors)
        for span in self._spans:
            span.attend(layer)


@final
class Span:
    """Rows first..last of a part, at most BLOCK. It sees the keys and values of rows before it once they have attended."""

    def __init__(
        self, shape: Shape, part: Part, store: JointStore, rows: tuple[int, int], flat: Tensor, mixed: Tensor
    ) -> None:
        first, last = rows
        n, group, width = last - first, shape.group, shape.head_dim
        self._shape = shape
        self._depths = part.depths[: part.first + last]
        self._ancestors = None if part.ancestors is None else part.ancestors[first:last, : part.first + last]
        self._committed = part.committed
        self._n = n
        self._end = part.committed + part.first + last
        self._length = -(-self._end // ALIGN) * ALIGN
        self._masks: dict[Pattern, tuple[Tensor, Tensor] | None] = {}
        self._new, self._keys, self._values = store.views(self._end - n, self._end, self._length)
        heads = flat.view(n, shape.all_heads, width)
        self._own = heads[:, shape.heads :]
        self._fresh = heads[:, : shape.heads].view(n, shape.kv_heads, group, width).transpose(0, 1)
        count = max(n * group, FEW)
        self._gathers = n > 1 or (shape.kv_heads - 1) * group + count > shape.all_heads
        if self._gathers:
            self._queries = flat.new_zeros(shape.kv_heads, count, width)
            self._query_rows = self._queries[:, : n * group].unflatten(1, (n, group))
        else:
            # queries beyond a single row's own are other heads: computed and not read
            self._queries = heads.as_strided((shape.kv_heads, count, width), (group * width, width, 1))
        self._scores = flat.new_empty(shape.kv_heads, count, self._length)
        self._shares = torch.empty_like(self._scores)
        self._outputs = flat.new_empty(shape.kv_heads, count, width)
        self._output_rows = self._outputs[:, : n * group].unflatten(1, (n, group)).transpose(0, 1)
        self._mixed = mixed.view(n, shape.kv_heads, group, width)

    def attend(self, layer: int) -> None:
        self._new[layer].copy_(self._own)
        if self._gathers:
            self._query_rows.copy_(self._fresh)
        pattern = self._shape.patterns[layer]
        if pattern not in self._masks:
            self._masks[pattern] = self._mask(pattern)
        torch.bmm(self._queries, self._keys[layer], out=self._scores)
        if (masked := self._masks[pattern]) is not None:
            columns, mask = masked
            columns.add_(mask)
        torch.softmax(self._scores, -1, out=self._shares)
        torch.bmm(self._shares, self._values[layer], out=self._outputs)
        self._mixed.copy_(self._output_rows)

    def _mask(self, pattern: Pattern) -> tuple[Tensor, Tensor] | None:
        """The columns of the scores that some row must not see, and 0 or -inf to be added; None if all see all.

        After a prefix that no window cuts, only the scratch rows' columns are masked.
        """
        reach = self._committed + max(self._depths)
        cut = any(limit is not None and reach >= limit for limit in (pattern.window, pattern.chunk))
        start = 0 if cut else self._committed
        seen = visible(pattern if cut else Pattern(), self._committed - start, self._depths, self._n, self._ancestors)
        if seen is None:
            start = self._end
            if start == self._length:
                return None
        mask = torch.full((self._n, self._length - start), -torch.inf)
        if seen is not None:
            mask[:, : self._end - start].masked_fill_(seen, 0)
        if self._n > 1:
            mask = mask.repeat_interleave(self._shape.group, 0)
            # queries beyond the rows' own see something, lest they become NaN
            mask = F.pad(mask, (0, 0, 0, self._queries.shape[1] - len(mask)))
        return self._scores[:, :, start:], mask.to(self._scores.device)
