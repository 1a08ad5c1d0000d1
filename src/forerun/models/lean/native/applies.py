"""Whether a model runs on the native step: decided once, when it is opened, for all that it will ever be asked.

Kernels round differently, so a text must not go from one to another between two rounds.
"""

from __future__ import annotations

import torch

from ..shape import ACTIVATIONS, Shape
from ..weights import GROUP
from .library import Library, choose

WEIGHTS = ("int8", "int4")


def native_kernels(shape: Shape, weights: str, device: torch.device) -> Library | str:
    """The kernels for this model, or the reason why it runs on torch's operations."""
    if weights not in WEIGHTS:
        return f"the native step holds weights in {', '.join(WEIGHTS)}"
    if device.type != "cpu":
        return f"the native step runs on CPUs and the model is on {device.type}"
    widths = (shape.width, shape.heads * shape.head_dim, shape.inner)
    if shape.head_dim % 2 or any(width % GROUP for width in widths):
        return (
            f"the model's widths ({shape.width}, {shape.heads} heads of {shape.head_dim}, {shape.inner} in the MLP) are not "
            f"multiples of {GROUP}"
        )
    if shape.activation not in ACTIVATIONS.values():
        return "the native step lacks the model's activation"
    return choose()
