"""Training an exit adapter on a frozen model's own answers: distillation, several drafted tokens deep.

The base runs once over each text, before; training reads its states from disk. A run that was killed goes on from its last
checkpoint as if nothing had happened.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..models.adapter_file import AdapterShape
from .adapter_block import ExitAdapter
from .adapter_data import AdapterBatch, AdapterData
from .adapter_loss import Chosen, adapter_loss, chain_hits, passes_of
from .frozen import Frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRecipe:
    """passes: how many drafted tokens deep; fade: the weight of each against the one before. rows: a batch's size.

    vocabulary: over how many of the most frequent tokens the loss is.
    """

    epochs: int = 3
    passes: int = 2
    fade: float = 0.7
    rows: int = 512
    learning_rate: float = 1.5e-3
    warmup: int = 50
    weight_decay: float = 0.01
    vocabulary: int = 8192
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "passes", "rows", "vocabulary"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.fade >= 0:
            raise ValueError(f"fade must be at least 0, got {self.fade}")
        if not self.learning_rate > 0:
            raise ValueError(f"the learning rate must be above 0, got {self.learning_rate}")


@dataclass(frozen=True, slots=True)
class Progress:
    """After a step: how many of all, the learning rate, the loss, and the KL of each pass."""

    step: int
    steps: int
    rate: float
    loss: float
    passes: tuple[float, ...]


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


@final
class Training:
    """One run. A checkpoint holds its adapter, its optimiser's state and its step."""

    def __init__(
        self, adapter: ExitAdapter, frozen: Frozen, chosen: Chosen, data: AdapterData, recipe: AdapterRecipe
    ) -> None:
        self.adapter = adapter
        self._frozen, self._chosen, self._data, self._recipe = frozen, chosen, data, recipe
        self.steps = recipe.epochs * len(data.groups(recipe.rows, seed=0))
        self.step = 0
        self._optimiser = torch.optim.AdamW(
            adapter.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=recipe.weight_decay
        )

    def run(self) -> Iterator[Progress]:
        """Every step that is left."""
        batches = chain.from_iterable(
            self._data.batches(self._recipe.rows, self._recipe.seed * 1009 + epoch) for epoch in count()
        )
        for batch in islice(batches, self.step, self.steps):
            yield self._advance(batch)

    def _advance(self, batch: AdapterBatch) -> Progress:
        rate = self._rate()
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16):
            outs = passes_of(self.adapter, batch, self._frozen.embeddings, self._recipe.passes)
            loss, each = adapter_loss(outs, batch, self._frozen, self._chosen, self._recipe.fade)
        loss.backward()
        nn.utils.clip_grad_norm_(self.adapter.parameters(), 1.0)
        self._optimiser.step()
        self._optimiser.zero_grad()
        self.step += 1
        return Progress(self.step, self.steps, rate, float(loss.detach()), tuple(float(one) for one in each))

    def _rate(self) -> float:
        """Linear warm-up, then half a cosine to a twentieth."""
        warm = min(1.0, (self.step + 1) / max(1, self._recipe.warmup))
        done = min(1.0, self.step / max(1, self.steps))
        return self._recipe.learning_rate * warm * max(0.05, 0.5 * (1 + math.cos(math.pi * done)))

    def save(self, file: Path) -> None:
        """Written under another name and moved when complete. Raises ValueError where the disk is full."""
        tensors = {f"adapter.{name}": value for name, value in self.adapter.state_dict().items()}
        for number, state in self._optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": torch.as_tensor(value) for name, value in state.items()}
        partial = file.with_suffix(".partial")
        try:
            save_file({**tensors, "step": torch.tensor(self.step)}, partial)
            os.replace(partial, file)
        except (OSError, SafetensorError) as error:
            partial.unlink(missing_ok=True)
            raise ValueError(f"can't write the checkpoint {file}: {error}") from error

    def resume(self, file: Path) -> None:
        tensors = load_file(file)
        self.step = int(tensors.pop("step"))
        own = {name.removeprefix("adapter."): value for name, value in tensors.items() if name.startswith("adapter.")}
        self.adapter.load_state_dict(own)
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimiser."):
                _, number, field = name.split(".")
                state.setdefault(int(number), {})[field] = value
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": state, "param_groups": groups})


def acceptance(
    adapter: ExitAdapter, frozen: Frozen, chosen: Chosen, data: AdapterData, length: int, rows: int = 4096
) -> list[float]:
    """The share of right tokens at each place of greedy drafts of this length, of those that were reached."""
    tried, right = [0] * length, [0] * length
    adapter.eval()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for batch in data.batches(rows):
            outs = passes_of(adapter, batch, frozen.embeddings, length)
            for number, (asked, hit) in enumerate(chain_hits(outs * (length // len(outs)), batch, frozen, chosen)):
                tried[number] += asked
                right[number] += hit
    adapter.train()
    return [hit / asked if asked else 0.0 for hit, asked in zip(right, tried, strict=True)]


def shape_like(config: Any, exit_layer: int, inputs: str, depth: int) -> AdapterShape:
    """An adapter whose blocks are built like the base's layers; raises ValueError on an exit that doesn't exist."""
    heads = int(config.num_attention_heads)
    rope: Mapping[str, Any] = getattr(config, "rope_parameters", None) or {}
    theta = rope.get("rope_theta", 10_000.0)
    shape = AdapterShape(
        exit_layer=exit_layer,
        inputs=inputs,
        depth=depth,
        hidden_size=int(config.hidden_size),
        intermediate_size=int(getattr(config, "intermediate_size", 0) or 4 * config.hidden_size),
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", 0) or heads),
        head_dim=int(getattr(config, "head_dim", 0) or config.hidden_size // heads),
        eps=float(getattr(config, "rms_norm_eps", 1e-6)),
        rope_theta=float(theta),
    )
    shape.check(int(config.num_hidden_layers))
    return shape
