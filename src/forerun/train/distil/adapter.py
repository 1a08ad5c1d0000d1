"""An exit adapter as a student: initialised from the frozen base, trained over several drafted tokens on its own states."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.identity import Identity
from ...models.files.adapter import AdapterFile, AdapterShape, write_adapter
from ...models.files.draft_shape import DraftShape
from ...models.packed.limits import head_dim_of
from ..sharding import spread
from .adapter_block import ExitAdapter, Past
from .data import DistilBatch
from .frozen import Frozen
from .loop import Student


@final
class AdapterStudent(Student):
    """The base's embeddings and head [size, D] stay as they are; the adapter is trained."""

    def __init__(self, adapter: ExitAdapter, base: Identity, embeddings: Tensor, head: Tensor) -> None:
        self.module = self.adapter = adapter
        self.head = head
        self._base = base
        self._embeddings = embeddings

    def passes(self, batch: DistilBatch, count: int) -> list[Tensor]:
        """With inputs "state" drafted tokens stand on true states, so there is one pass."""
        past: list[Past] = [[] for _ in self.adapter.layers]
        states = batch.states.float()
        if self.adapter.shape.inputs == "state":
            return [self.adapter.norm(self.adapter(states, None, past))]
        ahead = F.embedding(batch.ids[:, 1:-1], self._embeddings).to(states.dtype)
        # the state of the last row would draft what lies after the text
        own = states[:, :-1]
        outs: list[Tensor] = []
        for _ in range(count):
            out = self.adapter(own, ahead, past)
            outs.append(self.adapter.norm(out))
            own = torch.cat([own[:, :1], out[:, :-1].to(own.dtype)], 1)
        return outs

    def spread(self) -> AdapterStudent:
        other = copy(self)
        other.module = other.adapter = spread(self.adapter, lambda adapter: (*adapter.layers, adapter.norm, adapter))
        return other

    def write(self, directory: Path, ranking: Tensor, trained: Mapping[str, Any]) -> None:
        adapter = self.adapter
        write_adapter(AdapterFile(adapter.shape, self._base, adapter.named_weights(), ranking, trained), directory)


def new_adapter(shape: AdapterShape, frozen: Frozen, seed: int) -> ExitAdapter:
    """Begun from the base: its last layers' weights where they fit, its final norm, and states that pass through."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapter = ExitAdapter(shape)
    with torch.no_grad():
        adapter.fuse.weight.zero_()
        adapter.fuse.weight[:, : shape.hidden_size] = torch.eye(shape.hidden_size)
        if shape.inputs == "state+token":
            adapter.fuse.weight[:, shape.hidden_size :] = torch.eye(shape.hidden_size) / 2
        for norm in (adapter.state_norm, adapter.norm):
            _copy(norm, frozen.norm)
        # an adapter that is deeper than the base begins its last blocks at random
        for own, layer in zip(adapter.layers, frozen.last_layers[-shape.depth :], strict=False):
            _copy(own, layer)
    return adapter


def _copy(own: nn.Module, other: nn.Module) -> None:
    theirs = dict(other.named_parameters())
    for name, parameter in own.named_parameters():
        if name in theirs and theirs[name].shape == parameter.shape:
            parameter.copy_(theirs[name])


def shape_like(config: Any, exit_layer: int, inputs: str, depth: int) -> AdapterShape:
    """An adapter whose blocks are built like the base's layers; raises ValueError on an exit that doesn't exist."""
    layer = DraftShape.of(config)
    rope: Mapping[str, Any] = getattr(config, "rope_parameters", None) or {}
    theta = rope.get("rope_theta", 10_000.0)
    shape = AdapterShape(
        exit_layer=exit_layer,
        inputs=inputs,
        depth=depth,
        hidden_size=layer.width,
        intermediate_size=layer.mlp,
        heads=layer.heads,
        kv_heads=layer.kv_heads,
        head_dim=head_dim_of(config),
        eps=float(getattr(config, "rms_norm_eps", 1e-6)),
        rope_theta=float(theta),
    )
    shape.check(int(config.num_hidden_layers))
    return shape
