"""Batches for a student: texts of like length together, their states from disk, and which rows are learnt from."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..data.examples import Example
from ..data.states import StateStore
from ..processes import ALONE, Processes

# Texts are sorted by length with this much noise, so that batches differ from one epoch to the next.
NOISE = 24


@dataclass(frozen=True, slots=True, eq=False)
class DistilBatch:
    """T rows, those of the texts' tokens but the last, padded at the end. ids [B, T + 1].

    states [B, T, D] at the exit, last [B, T, D] after the last layer; learnt [B, T]: the rows of the target whose next
    token belongs to an answer.
    """

    ids: Tensor
    states: Tensor
    last: Tensor
    learnt: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DistilData:
    """Texts and where their states are; layers: the exit's and the last."""

    examples: Sequence[Example]
    stores: Sequence[StateStore]
    exit_layer: int
    num_layers: int

    def batches(self, rows: int, seed: int | None = None, processes: Processes = ALONE) -> Iterator[DistilBatch]:
        """Every text once, some `rows` rows a batch; in random order with a seed, else by length.

        Of each batch a process has its share of the texts; where none is left for it, one that isn't learnt.
        """
        for group in self.groups(rows, seed):
            own = group[processes.rank :: processes.size]
            batch = self._batch(own or group[:1])
            yield batch if own else replace(batch, learnt=torch.zeros_like(batch.learnt))

    def groups(self, rows: int, seed: int | None = None) -> list[list[Example]]:
        rng = random.Random(seed)
        noise = 0 if seed is None else NOISE
        ordered = sorted(self.examples, key=lambda one: (len(one.ids) + rng.random() * noise, one.ids))
        groups: list[list[Example]] = [[]]
        for example in ordered:
            if groups[-1] and (len(groups[-1]) + 1) * len(example.ids) > rows:
                groups.append([])
            groups[-1].append(example)
        if seed is not None:
            rng.shuffle(groups)
        return groups

    def _batch(self, group: Sequence[Example]) -> DistilBatch:
        longest = max(len(one.ids) for one in group)
        width = self.stores[0].width
        ids = torch.zeros(len(group), longest, dtype=torch.long)
        states, last = (torch.zeros(len(group), longest - 1, width, dtype=torch.bfloat16) for _ in range(2))
        learnt = torch.zeros(len(group), longest - 1, dtype=torch.bool)
        for i, example in enumerate(group):
            length = len(example.ids) - 1
            ids[i, : length + 1] = torch.tensor(example.ids)
            read = example.ids[:-1]
            store = next(store for store in self.stores if read in store)
            last[i, :length] = store.read(read, self.num_layers)
            at_the_end = self.exit_layer == self.num_layers
            states[i, :length] = last[i, :length] if at_the_end else store.read(read, self.exit_layer)
            learnt[i, example.start - 1 : length] = True
        return DistilBatch(ids, states, last, learnt)


def ranking_of(examples: Sequence[Example]) -> Tensor:
    """Token ids of the answers, the most frequent first; after them those that come up in prompts only."""
    answers = Counter(token for one in examples for token in one.ids[one.start :])
    prompts = Counter(token for one in examples for token in one.ids[: one.start] if token not in answers)
    ranked = [*sorted(answers, key=lambda t: (-answers[t], t)), *sorted(prompts, key=lambda t: (-prompts[t], t))]
    return torch.tensor(ranked)
