"""Temporarily wraps the forwards of decoder layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ...models.packed.layers import decoder_layers

Forward = Callable[..., Any]


@contextmanager
def wrapped(model: nn.Module, wrap: Callable[[int, nn.Module, Forward], Forward]) -> Iterator[None]:
    """Each layer runs wrap(index, layer, forward); afterwards the model is as it was.

    The wrapper stands outside of transformers' gradient checkpointing, so it isn't run again in the backward pass.
    """
    before: list[tuple[nn.Module, Any]] = []
    try:
        for index, layer in enumerate(decoder_layers(model)):
            before.append((layer, vars(layer).get("forward")))
            layer.forward = wrap(index, layer, layer.forward)
        yield
    finally:
        for layer, forward in before:
            del layer.forward
            if forward is not None:
                layer.forward = forward
