"""A layer of the lean decoder: fused weights, and its two sublayers, each of which adds to the residual stream in place.

The stream, the queries, keys and values are float32 whatever the weights are; only the rows that a matrix product takes are
cast to its type. At a few microseconds an operation, two hundred of them are a tenth of a small model's step: hence norms of
four operations, and views instead of copies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from .attention import Stage
from .linear import TORCH, Kernels, Linear, make_linear
from .shape import Shape


@final
class Norm:
    """RMS norm over the last dimension; x / |x| in the place of x * rsqrt(mean(x^2) + eps) takes half the time.

    weight [..., width] is float32; it is kept times the root of the width.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        width = weight.shape[-1]
        self.weight: Tensor = weight.float() * width**0.5
        self._root = torch.tensor((eps * width) ** 0.5, device=weight.device)

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        length = torch.linalg.vector_norm(x, 2, -1, True).hypot_(self._root)
        return torch.div(x.mul(self.weight), length, out=out)


@final
class HeadNorm:
    """A norm of the features start.. of fused queries, keys and values, in place.

    weight [heads, head_dim] normalises each head by itself, [features] all of them together.
    """

    def __init__(self, start: int, weight: Tensor, eps: float) -> None:
        self._start = start
        self._features = weight.numel()
        self._form = weight.shape
        self._norm = Norm(weight, eps)

    @property
    def weight(self) -> Tensor:
        return self._norm.weight

    def __call__(self, flat: Tensor) -> None:
        own = flat.narrow(1, self._start, self._features).unflatten(1, self._form)
        self._norm(own, own)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Norms are None where the family has none."""

    index: int
    shape: Shape
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear
    before_attention: Norm | None
    after_attention: Norm | None
    before_mlp: Norm | None
    after_mlp: Norm | None
    head_norms: tuple[HeadNorm, ...] = ()

    def attend(self, x: Tensor, stage: Stage, factors: Tensor) -> None:
        """x [n, width] and the rotation's factors are of the stage's rows."""
        normed = x if self.before_attention is None else self.before_attention(x, stage.normed)
        stage.flat.copy_(self.qkv(normed))
        for normalise in self.head_norms:
            normalise(stage.flat)
        stage.attend(self.index, factors)
        self._add(x, self.out(stage.mixed), self.after_attention)

    def feed(self, x: Tensor, stage: Stage) -> None:
        """The gated MLP on x [n, width]."""
        normed = x if self.before_mlp is None else self.before_mlp(x, stage.normed)
        gate, up = self.gate_up(normed).chunk(2, 1)
        self._add(x, self.down(self.shape.activation(gate).mul_(up)), self.after_mlp)

    def _add(self, x: Tensor, y: Tensor, norm: Norm | None) -> None:
        if norm is not None:
            y = norm(y.float())
        if self.shape.residual_scale == 1:
            x.add_(y)
        else:
            x.add_(y, alpha=self.shape.residual_scale)

    def in_weights(self, weights: str, kernels: Kernels = TORCH) -> Layer:
        """The same layer with its matrices held otherwise."""
        qkv, out, gate_up, down = (
            make_linear([own.dense()], weights, own.bias, kernels=kernels)
            for own in (self.qkv, self.out, self.gate_up, self.down)
        )
        return replace(self, qkv=qkv, out=out, gate_up=gate_up, down=down)

    @property
    def nbytes(self) -> int:
        return sum(linear.nbytes for linear in (self.qkv, self.out, self.gate_up, self.down))
