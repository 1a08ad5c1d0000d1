"""A layer of the lean decoder: fused weights, and its two sublayers, each of which adds to the residual stream in place.

The stream, the queries, keys and values are float32 whatever the weights are; only the rows that a matrix product takes are
cast to its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from .lean_attention import Span
from .lean_shape import Shape
from .linear import Linear, make_linear


@final
@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Norm weights are float32 or None where the family has none.

    head_norm: [heads + kv_heads, head_dim] where each head is normalised by itself, [(heads + kv_heads) * head_dim] where
    queries and keys are normalised as a whole.
    """

    index: int
    shape: Shape
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear
    before_attention: Tensor | None
    after_attention: Tensor | None
    before_mlp: Tensor | None
    after_mlp: Tensor | None
    head_norm: Tensor | None

    def attend(self, x: Tensor, spans: Sequence[Span], factors: Tensor) -> None:
        """x [n, width] and the rotation's factors are of the rows of all spans."""
        shape, n = self.shape, x.shape[0]
        flat = self.qkv(_norm(x, self.before_attention, shape.eps)).float()
        heads = flat.view(n, shape.all_heads, shape.head_dim)
        if self.head_norm is not None:
            self._normalise(heads, self.head_norm)
        torch.view_as_complex(flat.view(n, shape.all_heads, -1, 2)).mul_(factors)
        if len(spans) == 1:
            mixed = spans[0].attend(self.index, heads)
        else:
            mixed = torch.cat([span.attend(self.index, heads[span.rows]) for span in spans])
        self._add(x, self.out(mixed), self.after_attention)

    def feed(self, x: Tensor) -> None:
        """The gated MLP on x [n, width]."""
        both = self.gate_up(_norm(x, self.before_mlp, self.shape.eps))
        half = both.shape[1] // 2
        gated = self.shape.activation(both.narrow(1, 0, half)).mul_(both.narrow(1, half, half))
        self._add(x, self.down(gated), self.after_mlp)

    def _add(self, x: Tensor, y: Tensor, norm: Tensor | None) -> None:
        if norm is not None:
            y = _norm(y.float(), norm, self.shape.eps)
        x.add_(y, alpha=self.shape.residual_scale)

    def _normalise(self, heads: Tensor, weight: Tensor) -> None:
        shape = self.shape
        if weight.ndim == 2:
            own = heads.narrow(1, 0, weight.shape[0])
            torch.mul(F.rms_norm(own, (shape.head_dim,), None, shape.eps), weight, out=own)
            return
        flat, queries = heads.view(heads.shape[0], -1), shape.heads * shape.head_dim
        for start, end in ((0, queries), (queries, weight.shape[0])):
            own = flat.narrow(1, start, end - start)
            own.copy_(F.rms_norm(own, (end - start,), weight[start:end], shape.eps))

    def in_weights(self, weights: str) -> Layer:
        """The same layer with its matrices held otherwise."""
        matrices = {name: getattr(self, name) for name in ("qkv", "out", "gate_up", "down")}
        return replace(self, **{name: make_linear([own.dense()], weights, own.bias) for name, own in matrices.items()})

    @property
    def nbytes(self) -> int:
        return sum(linear.nbytes for linear in (self.qkv, self.out, self.gate_up, self.down))


def _norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    return x if weight is None else F.rms_norm(x, weight.shape, weight, eps)
