"""Layer dropout (LayerSkip, arXiv 2404.16710): each sample of a batch leaves out each whole block at the block's rate.

Dropped samples are taken out of the batch with everything that belongs to them, the block runs on the rest, and its
outputs go back to their places. Nothing is rescaled. Which samples are dropped depends on the seed, the optimiser step,
the batch within it and the layer, and on nothing else: so it is the same after a resume, and all processes drop equally
many.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn

from ...models.packed.layers import OutputFormat, state_of, taken
from .wrapping import Forward, wrapped


def kept(seed: int, step: int, micro: int, layer: int, batch: int, rate: float) -> list[int]:
    """The samples, out of `batch`, that run through a layer; micro counts the batches of an optimiser step."""
    chance = random.Random(f"{seed} {step} {micro} {layer}")
    return [sample for sample in range(batch) if chance.random() >= rate]


@final
class LayerDropout:
    """Dropout on the decoder layers of a model, while it is installed, in training mode, and a batch has begun."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._step = 0
        self._micro = 0
        self._rates: Sequence[float] = ()

    def begin(self, step: int, micro: int, rates: Sequence[float]) -> None:
        """What comes now is batch `micro` of an optimiser step, with these rates, one a layer."""
        self._step, self._micro, self._rates = step, micro, rates

    @contextmanager
    def installed(self, model: nn.Module) -> Iterator[None]:
        with wrapped(model, self._wrap):
            yield

    def _wrap(self, index: int, layer: nn.Module, forward: Forward) -> Forward:
        output_format = OutputFormat()

        def run(hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
            batch = hidden.shape[0]
            rate = self._rates[index] if layer.training and self._rates else 0.0
            samples = kept(self._seed, self._step, self._micro, index, batch, rate)
            if len(samples) == batch:
                out = forward(hidden, *args, **kwargs)
                output_format.learn(out)
                return out
            chosen = torch.tensor(samples or [0], device=hidden.device)
            some = [taken(value, chosen, batch, 0) for value in (hidden, *args)]
            named = {name: taken(value, chosen, batch, 0) for name, value in kwargs.items()}
            if not samples:
                if not output_format.known:
                    with torch.no_grad():
                        output_format.learn(forward(*some, **named))
                return output_format.of(hidden + _nothing(layer, hidden))
            out = forward(*some, **named)
            output_format.learn(out)
            state = state_of(out)
            return output_format.of(hidden.to(state.dtype).index_copy(0, chosen, state))

        return run


def _nothing(layer: nn.Module, like: Tensor) -> Tensor:
    """Zero, with a gradient of zero for each weight: several processes wait for the gradient of every weight."""
    weights = [weight.reshape(-1)[0] for weight in layer.parameters() if weight.requires_grad]
    zero = like.new_zeros(())
    for weight in weights:
        zero = zero + 0.0 * weight.to(like.dtype)
    return zero
