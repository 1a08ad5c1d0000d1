"""The early-exit loss (LayerSkip, arXiv 2404.16710): J = sum of w(t, l) CE(g(x_{l+1}), Y) over the exits that are on.

x_{l+1} is the state after layer l, g the model's own final norm and head. The states are noted while the model runs
through; then its own forward runs once more for each exit with the state put in after the last layer and no layer run, so
that whatever it does there (norm, projection, scaling, soft cap) is done as it always is. Only rows with something to
learn are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...models.packed.layers import OutputFormat, state_of
from .wrapping import Forward, wrapped

IGNORED = -100


def learnt_rows(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of a batch, laid flat, whose next token is learnt, and those tokens. labels [batch, length]."""
    following = F.pad(labels[:, 1:], (0, 1), value=IGNORED).reshape(-1)
    rows = (following != IGNORED).nonzero().reshape(-1)
    return rows, following[rows]


@final
class Exits:
    """The states after the layers of a model at chosen rows, and the logits its own norm and head make of them."""

    def __init__(self, num_layers: int) -> None:
        self._last = num_layers - 1
        self._rows: Tensor | None = None
        self._wanted: Collection[int] = ()
        self._states: dict[int, Tensor] = {}
        self._entering: Tensor | None = None

    @contextmanager
    def installed(self, model: nn.Module) -> Iterator[None]:
        with wrapped(model, self._wrap):
            yield

    def states(self, model: Any, wanted: Collection[int], rows: Tensor, inputs: Mapping[str, Any]) -> dict[int, Tensor]:
        """Run the model and give, by layer, the states after the wanted layers [rows, hidden size]."""
        self._rows, self._wanted, self._states = rows, wanted, {}
        try:
            # the head is run for the exits alone, so one row of it is enough here
            model(**inputs, use_cache=False, logits_to_keep=1)
            return self._states
        finally:
            self._rows, self._wanted, self._states = None, (), {}

    def logits(self, model: Any, state: Tensor) -> Tensor:
        """What the model's norm and head make of states [rows, hidden size]: [rows, vocabulary]."""
        self._entering = state.unsqueeze(1)
        try:
            ids = torch.zeros(state.shape[0], 1, dtype=torch.long, device=state.device)
            logits: Tensor = model(input_ids=ids, use_cache=False).logits
            return logits[:, 0]
        finally:
            self._entering = None

    def _wrap(self, index: int, layer: nn.Module, forward: Forward) -> Forward:
        output_format = OutputFormat()

        def run(hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._entering is not None:
                return output_format.of(self._entering if index == self._last else hidden)
            out = forward(hidden, *args, **kwargs)
            output_format.learn(out)
            if self._rows is not None and index in self._wanted:
                self._states[index] = state_of(out).flatten(0, 1).index_select(0, self._rows)
            return out

        return run


def exit_loss(
    exits: Exits,
    model: Any,
    inner: Any,
    inputs: Mapping[str, Any],
    weights: Mapping[int, float],
    count: Tensor | int | None = None,
    spare_memory: bool = False,
) -> Tensor:
    """J, divided by `count` learnt tokens, or by those of the batch. inputs has "labels" [batch, length].

    model runs through (it may be wrapped for several processes), inner, the model itself, reads the exits. spare_memory
    computes the logits again in the backward pass, so that one exit's are held at a time.
    """
    rows, targets = learnt_rows(inputs["labels"])
    given = {name: value for name, value in inputs.items() if name != "labels"}
    states = exits.states(model, weights.keys(), rows, given)

    def loss_of(state: Tensor) -> Tensor:
        return F.cross_entropy(exits.logits(inner, state).float(), targets, reduction="sum")

    total = torch.zeros((), device=rows.device)
    for layer, weight in weights.items():
        state = states[layer]
        loss = checkpoint(loss_of, state, use_reentrant=False) if spare_memory else loss_of(state)
        total = total + weight * loss
    return total / (count if count is not None else max(1, len(targets)))
