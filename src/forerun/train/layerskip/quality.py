"""The quality of a model's exits, and of the whole model, on held-out examples.

Loss and agreement are teacher-forced: the model reads an example once, and its own final norm and head are applied to the
states after every layer, at the rows whose next token is learnt. Answers are the model's own greedy ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...engine.engine import Engine
from ...engine.request import RequestOptions
from ...models.packed.layers import decoder_layers
from ..data.examples import Example
from .batches import Rows, collate
from .exit_loss import Exits, learnt_rows

BATCH = 8
# so many rows' logits are held at once
CHUNK = 256
# math.exp overflows above
MOST = 700


@dataclass(frozen=True, slots=True)
class ExitQuality:
    """An exit after so many layers: mean cross-entropy, how often its best token is the last layer's, and the data's."""

    exit_layer: int
    loss: float
    agreement: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Answers:
    """How many greedy answers are the data's, token for token; those longer than allowed were left out."""

    exact: int
    asked: int
    left_out: int

    @property
    def share(self) -> float | None:
        return self.exact / self.asked if self.asked else None


@dataclass(frozen=True, slots=True)
class Quality:
    """A model's exits, the last of which is the whole model, and its answers."""

    model: str
    exits: tuple[ExitQuality, ...]
    answers: Answers

    @property
    def perplexity(self) -> float:
        """Of the whole model, per learnt token."""
        loss = self.exits[-1].loss
        return math.exp(loss) if loss < MOST else math.inf

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "perplexity": self.perplexity,
            "answers": {**asdict(self.answers), "share": self.answers.share},
            "exits": [asdict(one) for one in self.exits],
        }


@torch.inference_mode()
def exit_qualities(
    model: Any, examples: Sequence[Example], tick: Callable[[], None] = lambda: None
) -> list[ExitQuality]:
    """Every exit from 1 to the whole model, over all learnt tokens. tick is called once a batch (see num_batches)."""
    count = len(decoder_layers(model))
    sums = torch.zeros(count, 3, dtype=torch.float64)
    tokens = 0
    training = model.training
    model.eval()
    exits = Exits(count)
    try:
        with exits.installed(model):
            for batch in _batches(examples):
                inputs = {name: values.to(model.device) for name, values in batch.items()}
                rows, targets = learnt_rows(inputs.pop("labels"))
                states = exits.states(model, range(count), rows, inputs)
                for start in range(0, len(rows), CHUNK):
                    some = slice(start, start + CHUNK)
                    sums += _sums(exits, model, [states[layer][some] for layer in range(count)], targets[some])
                tokens += len(rows)
                tick()
    finally:
        model.train(training)
    means: list[list[float]] = (sums / tokens).tolist()
    return [ExitQuality(number, *mean) for number, mean in enumerate(means, start=1)]


def num_batches(examples: Sequence[Example]) -> int:
    return math.ceil(len(examples) / BATCH)


def _batches(examples: Sequence[Example]) -> Iterator[dict[str, Tensor]]:
    """Texts of about the same length together, so that little is padding."""
    ordered = sorted(examples, key=lambda example: len(example.ids))
    for start in range(0, len(ordered), BATCH):
        rows = Rows([(example,) for example in ordered[start : start + BATCH]])
        yield collate([rows[index] for index in range(len(rows))])


def _sums(exits: Exits, model: Any, states: Sequence[Tensor], targets: Tensor) -> Tensor:
    """[exits, 3]: summed loss, agreements with the last exit, and right tokens."""
    best = exits.logits(model, states[-1]).argmax(-1)
    found: list[list[float]] = []
    for state in states:
        logits = exits.logits(model, state).float()
        chosen = logits.argmax(-1)
        loss = F.cross_entropy(logits, targets, reduction="sum")
        found.append([float(loss), float((chosen == best).sum()), float((chosen == targets).sum())])
    return torch.tensor(found, dtype=torch.float64)


def exact_answers(
    engine: Engine, examples: Sequence[Example], max_new_tokens: int, tick: Callable[[], None] = lambda: None
) -> Answers:
    """Let the model answer the examples' prompts, plainly and in batches; tick is called once an answer."""
    wanted = [example for example in examples if len(example.ids) - example.start <= max_new_tokens]
    requests: list[tuple[list[int], RequestOptions]] = [
        # more tokens than the data's answer has can't change whether it is the same
        (list(one.ids[: one.start]), {"max_new_tokens": len(one.ids) - one.start, "speculate": False})
        for one in wanted
    ]
    exact = 0
    for index, result in engine.each(requests):
        exact += result.ids == wanted[index].ids[wanted[index].start :]
        tick()
    return Answers(exact, len(wanted), len(examples) - len(wanted))
