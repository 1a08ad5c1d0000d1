"""From examples to the rows of a batch: padded on the right, or several packed into a row without seeing each other."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from ...errors import UnsupportedModel
from ..data.examples import Example
from .exit_loss import IGNORED

TOLERANCE = 1e-3
# batches that are sorted by length together: fewer mix lengths more, and pad more
POOL = 50


def packed(examples: Sequence[Example], length: int) -> list[tuple[Example, ...]]:
    """Rows of at most `length` tokens: each example goes into the first row that has room, long ones first."""
    rows: list[list[Example]] = []
    room: list[int] = []
    for example in sorted(examples, key=lambda one: -len(one.ids)):
        size = len(example.ids)
        if size > length:
            raise ValueError(f"an example of {size} tokens doesn't fit a packed row of {length}; make the rows longer")
        place = next((index for index, free in enumerate(room) if free >= size), None)
        if place is None:
            rows.append([])
            room.append(length)
            place = len(rows) - 1
        rows[place].append(example)
        room[place] -= size
    return [tuple(row) for row in rows]


def ordered(lengths: Sequence[int], batch: int, steps: int, seed: int) -> list[int]:
    """Which row comes when: steps batches, of rows of like length, pass by pass in an order drawn anew.

    batch counts the rows of an optimiser step over all processes, so that their number changes nothing.
    """
    chance = random.Random(f"{seed} order")
    order: list[int] = []
    while len(order) < batch * steps:
        left = list(range(len(lengths)))
        chance.shuffle(left)
        batches: list[list[int]] = []
        for start in range(0, len(left), POOL * batch):
            pool = sorted(left[start : start + POOL * batch], key=lengths.__getitem__)
            batches += [pool[at : at + batch] for at in range(0, len(pool), batch)]
        # a batch that isn't full comes last in its pass, so that the others stay together
        batches.sort(key=lambda rows: (len(rows) < batch, chance.random()))
        order += [row for rows in batches for row in rows]
    return order[: batch * steps]


def labels_of(example: Example) -> list[int]:
    """The token ids that are learnt in their places, IGNORED in the others."""
    return [IGNORED] * example.start + list(example.ids[example.start :])


@final
class Rows(Dataset[dict[str, list[int]]]):
    """A row for each tuple of examples: input_ids and labels; of packed rows also position_ids, that restart."""

    def __init__(self, rows: Sequence[Sequence[Example]], packed: bool = False) -> None:
        self._rows = rows
        self._packed = packed

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        row = self._rows[index]
        found = {
            "input_ids": [token for example in row for token in example.ids],
            "labels": [label for example in row for label in labels_of(example)],
        }
        if self._packed:
            found["position_ids"] = [place for example in row for place in range(len(example.ids))]
        return found


def collate(rows: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, Tensor]:
    """A batch, padded on the right. Packed rows come without an attention mask: transformers keeps them apart by positions.

    Padding after a packed row starts a position sequence of its own.
    """
    batch = {
        name: pad_sequence(
            [torch.tensor(row[name]) for row in rows],
            batch_first=True,
            padding_value=IGNORED if name == "labels" else 0,
        )
        for name in rows[0]
    }
    lengths = torch.tensor([len(row["input_ids"]) for row in rows]).unsqueeze(1)
    places = torch.arange(batch["input_ids"].shape[1]).unsqueeze(0)
    if "position_ids" in batch:
        batch["position_ids"] = torch.where(places < lengths, batch["position_ids"], places - lengths)
    else:
        batch["attention_mask"] = (places < lengths).long()
    return batch


def check_packing(model: Any) -> None:
    """Raise UnsupportedModel where examples that share a row see each other: run a row and its second half, compare."""
    first, second = [1, 2, 3, 4, 5, 6, 7], [3, 1, 4, 1, 5]
    row = Rows([(Example(tuple(first), 1), Example(tuple(second), 1))], packed=True)
    batch = collate([row[0]])
    alone = torch.tensor([second], device=model.device)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            ids, places = (batch[name].to(model.device) for name in ("input_ids", "position_ids"))
            together = model(input_ids=ids, position_ids=places, use_cache=False).logits[0, len(first) :]
            expected = model(input_ids=alone, use_cache=False).logits[0]
    finally:
        model.train(training)
    off = float((together.float() - expected.float()).abs().max())
    if not off <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise UnsupportedModel(
            f"{type(model).__name__} lets packed examples see each other (logits differ by {off:.2g}); leave packing out"
        )
