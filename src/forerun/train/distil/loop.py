"""Trains a student on the frozen target's distributions on its own answers: steps, checkpoints, and evaluation.

The target runs once over each text beforehand; training reads its states from disk. A run that was killed resumes from its
last checkpoint, with the same result.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .data import DistilBatch, DistilData
from .frozen import Frozen
from .loss import Chosen, chain_hits, distil_loss
from .recipe import DistilRecipe


class Student(ABC):
    """What is taught. module holds its parameters, of which those that require a gradient are trained.

    head [size, D]: the rows of its output head for the chosen tokens, in their order.
    """

    module: nn.Module
    head: Tensor

    @abstractmethod
    def passes(self, batch: DistilBatch, count: int) -> list[Tensor]:
        """What its head reads [B, R, D], drafted token by drafted token; one pass where all places of a draft are alike.

        Row t of pass j stands for the (j + 1)-th token of a draft that began j tokens before; the target rows are the
        batch's last R.
        """

    @abstractmethod
    def write(self, directory: Path, ranking: Tensor, trained: Mapping[str, Any]) -> None:
        """Into a directory that isn't there, with the answers' tokens [any] by frequency and the facts of the training."""

    def trained(self) -> dict[str, nn.Parameter]:
        return {name: one for name, one in self.module.named_parameters() if one.requires_grad}


@dataclass(frozen=True, slots=True)
class Progress:
    """After a step: how many of all, the learning rate, the loss, and the KL of each pass."""

    step: int
    steps: int
    rate: float
    loss: float
    passes: tuple[float, ...]


@final
class Training:
    """One run. A checkpoint holds what is trained of its student, its optimiser's state and its step."""

    def __init__(
        self, student: Student, frozen: Frozen, chosen: Chosen, data: DistilData, recipe: DistilRecipe
    ) -> None:
        self.student = student
        self._frozen, self._chosen, self._data, self._recipe = frozen, chosen, data, recipe
        self.steps = recipe.epochs * len(data.groups(recipe.rows, seed=0))
        self.step = 0
        self._trained = student.trained()
        self._optimiser = torch.optim.AdamW(
            self._trained.values(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=recipe.weight_decay
        )

    def run(self) -> Iterator[Progress]:
        """Every step that is left."""
        batches = chain.from_iterable(
            self._data.batches(self._recipe.rows, self._recipe.seed * 1009 + epoch) for epoch in count()
        )
        for batch in islice(batches, self.step, self.steps):
            yield self._advance(batch)

    def _advance(self, batch: DistilBatch) -> Progress:
        rate = self._rate()
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16):
            outs = self.student.passes(batch, self._recipe.passes)
            loss, each = distil_loss(outs, self.student.head, batch, self._frozen, self._chosen, self._recipe.fade)
        loss.backward()
        nn.utils.clip_grad_norm_(self._trained.values(), 1.0)
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
        tensors = {f"student.{name}": value.detach() for name, value in self._trained.items()}
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
        with torch.no_grad():
            for name, parameter in self._trained.items():
                parameter.copy_(tensors[f"student.{name}"])
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimiser."):
                _, number, field = name.split(".")
                state.setdefault(int(number), {})[field] = value
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": state, "param_groups": groups})


def acceptance(
    student: Student, frozen: Frozen, chosen: Chosen, data: DistilData, length: int, rows: int = 4096
) -> list[float]:
    """The share of right tokens at each place of greedy drafts of this length, of those that were reached."""
    tried, right = [0] * length, [0] * length
    student.module.eval()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for batch in data.batches(rows):
            outs = student.passes(batch, length)
            found = chain_hits(outs * (length // len(outs)), student.head, batch, frozen, chosen)
            for number, (asked, hit) in enumerate(found):
                tried[number] += asked
                right[number] += hit
    student.module.train()
    return [hit / asked if asked else 0.0 for hit, asked in zip(right, tried, strict=True)]
