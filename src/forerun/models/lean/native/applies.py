"""Whether a model runs on the native step: decided once, when it is opened, for all that it will ever be asked.

Kernels round differently, so a text must not go from one to another between two rounds.
"""

from __future__ import annotations

import torch

from ..shape import ACTIVATIONS, Shape
from ..weights import GROUP
from .library import Library, choose
from .matrix import LANES

DTYPES = frozenset({torch.float32, torch.bfloat16})
SMALL = ("int4", "int8")


def native_kernels(shape: Shape, weights: str, dtypes: frozenset[torch.dtype], device: torch.device) -> Library | str:
    """The kernels for this model, or the reason why it runs on torch's operations. dtypes: of its own matrices."""
    if device.type != "cpu":
        return f"the native step runs on CPUs and the model is on {device.type}"
    if not weights and dtypes - DTYPES:
        own = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes - DTYPES))
        return f"the native step holds floats in float32 and bfloat16 and the model's are {own}"
    inner = shape.heads * shape.head_dim
    # dense rows may be of any length, results come 16 at a time
    each = GROUP if weights in SMALL else LANES
    widths = (shape.width, shape.mlp, inner) if weights in SMALL else (shape.width, shape.mlp)
    if shape.head_dim % 2 or any(width % each for width in widths):
        return (
            f"the model's widths ({shape.width}, {shape.mlp}, {shape.heads} heads of {shape.head_dim}) "
            f"are not multiples of {each}"
        )
    if shape.activation not in ACTIVATIONS.values():
        return "the native step lacks the model's activation"
    return choose()
