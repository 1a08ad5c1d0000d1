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

from ..processes import ALONE, Processes
from ..sharding import load_optimiser, load_weights, optimiser_tensors, trained_weights
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

    @abstractmethod
    def spread(self) -> Student:
        """A copy to be trained by several processes together, its weights spread over them."""

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
        self,
        student: Student,
        frozen: Frozen,
        chosen: Chosen,
        data: DistilData,
        recipe: DistilRecipe,
        processes: Processes = ALONE,
    ) -> None:
        self.student = student
        self.processes = processes
        self._frozen, self._chosen, self._data, self._recipe = frozen, chosen, data, recipe
        self.steps = recipe.epochs * len(data.groups(recipe.rows, seed=0))
        self.step = 0
        self._learning = student if processes.size == 1 else student.spread()
        self._trained = self._learning.trained()
        self._optimiser = torch.optim.AdamW(
            self._trained.values(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=recipe.weight_decay
        )

    def run(self) -> Iterator[Progress]:
        """Every step that is left; after the last one the student has learnt, in every process."""
        batches = chain.from_iterable(
            self._data.batches(self._recipe.rows, self._recipe.seed * 1009 + epoch, self.processes) for epoch in count()
        )
        for batch in islice(batches, self.step, self.steps):
            yield self._advance(batch)
        if self._learning is not self.student:
            load_weights(self.student.module, trained_weights(self._learning.module))

    def _advance(self, batch: DistilBatch) -> Progress:
        rate = self._rate()
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        learning, processes = self._learning, self.processes
        with torch.autocast("cpu", torch.bfloat16):
            outs = learning.passes(batch, self._recipe.passes)
            loss, each = distil_loss(
                outs, learning.head, batch, self._frozen, self._chosen, self._recipe.fade, processes
            )
        # the gradients of several processes are averaged
        (loss * processes.size).backward()
        nn.utils.clip_grad_norm_(self._trained.values(), 1.0)
        self._optimiser.step()
        self._optimiser.zero_grad()
        self.step += 1
        told, *passes = processes.add_up(torch.stack([loss, *each])).tolist()
        return Progress(self.step, self.steps, rate, told, tuple(passes))

    def _rate(self) -> float:
        """Linear warm-up, then half a cosine to a twentieth."""
        warm = min(1.0, (self.step + 1) / max(1, self._recipe.warmup))
        done = min(1.0, self.step / max(1, self.steps))
        return self._recipe.learning_rate * warm * max(0.05, 0.5 * (1 + math.cos(math.pi * done)))

    def save(self, file: Path) -> None:
        """Written under another name and moved when complete. Raises ValueError where the disk is full.

        All processes must call it, and the first one writes.
        """
        tensors = {f"student.{name}": value for name, value in trained_weights(self._learning.module).items()}
        tensors |= {f"optimiser.{name}": value for name, value in optimiser_tensors(self._optimiser).items()}
        if not self.processes.main:
            return
        partial = file.with_suffix(".partial")
        try:
            save_file({**tensors, "step": torch.tensor(self.step)}, partial)
            os.replace(partial, file)
        except (OSError, SafetensorError) as error:
            partial.unlink(missing_ok=True)
            raise ValueError(f"can't write the checkpoint {file}: {error}") from error

    def resume(self, file: Path) -> None:
        """From what any number of processes saved."""
        tensors = load_file(file)
        self.step = int(tensors.pop("step"))
        load_weights(self._learning.module, _under("student.", tensors))
        load_optimiser(self._optimiser, _under("optimiser.", tensors))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def acceptance(
    student: Student,
    frozen: Frozen,
    chosen: Chosen,
    data: DistilData,
    length: int,
    rows: int = 4096,
    processes: Processes = ALONE,
) -> list[float]:
    """The share of right tokens at each place of greedy drafts of this length, of those that were reached."""
    tried, right = [0] * length, [0] * length
    student.module.eval()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for batch in data.batches(rows, processes=processes):
            outs = student.passes(batch, length)
            found = chain_hits(outs * (length // len(outs)), student.head, batch, frozen, chosen)
            for number, (asked, hit) in enumerate(found):
                tried[number] += asked
                right[number] += hit
    student.module.train()
    tried, right = processes.add_up(torch.tensor([tried, right])).tolist()
    return [hit / asked if asked else 0.0 for hit, asked in zip(right, tried, strict=True)]
