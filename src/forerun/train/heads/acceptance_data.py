"""What an acceptance head learns from: the drafter's hidden state of a drafted token, and how likely it is accepted.

After every token of the target's answer X the drafter's law q and the target's law p are read in one pass each. A token Y
is drawn from each q, and accepted with probability min(1, p(Y) / q(Y)): the soft label. The drafter then reads a mixed text
Z, which keeps X's token with probability r and has Y's otherwise; its row that reads a drafted token gives the features.

Source: Huang et al., SpecDec++, arXiv 2405.19715, section 3.2.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.chance import Chance, Seeded
from ...core.drafter import Drafter
from ...core.drive import Batch
from ...core.sampling import law
from ...core.values import Sampling
from ...engine.engine import Engine
from ...jsonl import Skipped, made_of
from ...models.packed.sequence import Sequence as Target
from ..data.examples import Example

# a drafter that works on states of the text begins after the second token
LEAST_PROMPT = 3


@dataclass(frozen=True, slots=True, eq=False)
class Drafted:
    """The drafted tokens of one answer that the mixed text has: hidden [n, D], float32, and accepted [n]."""

    hidden: Tensor
    accepted: Tensor

    def __len__(self) -> int:
        return len(self.accepted)


def collect(
    engine: Engine, examples: Sequence[Example], sampling: Sampling, mixing: float, seed: int, max_batch: int = 8
) -> Iterator[tuple[int, Drafted]]:
    """(number of the example, what it gives), in the order in which they end. Up to max_batch texts share a forward.

    Raises ValueError where mixing isn't in [0, 1), or an answer has a prompt shorter than LEAST_PROMPT tokens.
    """
    if not 0 <= mixing < 1:
        raise ValueError(f"the mixing rate must be in [0, 1), got {mixing}")
    if sampling.uses_history:
        raise ValueError("penalties and processors can't be learnt from: take temperature, top_k and top_p only")
    for number, example in enumerate(examples, start=1):
        if example.start < LEAST_PROMPT:
            raise ValueError(
                f"example {number} has a prompt of {example.start} tokens; at least {LEAST_PROMPT} are needed"
            )
    batch: Batch[int, Drafted] = Batch()
    waiting = iter(enumerate(examples))

    def fill() -> None:
        for index, example in islice(waiting, max_batch - len(batch)):
            batch.add(index, _source(engine, example, sampling, mixing, Seeded(seed * 1_000_003 + index)))

    try:
        fill()
        for event in batch.run():
            if event.error is not None:
                raise event.error
            if event.value is None:
                fill()
            else:
                yield event.key, event.value
    finally:
        batch.close()


async def _source(
    engine: Engine, example: Example, sampling: Sampling, mixing: float, chance: Chance
) -> AsyncGenerator[Drafted]:
    with engine.borrow(example.ids[: example.start]) as (target, drafter):
        yield await examine(target, drafter, example, sampling, mixing, chance)


async def examine(
    target: Target, drafter: Drafter, example: Example, sampling: Sampling, mixing: float, chance: Chance
) -> Drafted:
    """Read one answer twice with the drafter and once with the target."""
    ids, start = list(example.ids), example.start
    drafting = await drafter.read(ids[:-1], start)
    await target.sync(ids[: start - 1])
    verifying = await target.forward(ids[start - 1 : -1])
    target.drop()
    accepted, mixed, kept = [], [], []
    for place, known in enumerate(ids[start:]):
        q, p = law(drafting.logits[place], sampling), law(verifying.logits[place], sampling)
        token = q.quantile(chance.uniform(b"head draft", place))
        accepted.append(min(1.0, p.probability(token) / q.probability(token)))
        mixed.append(known if chance.uniform(b"head mix", place) < mixing else token)
        kept.append(mixed[-1] == token)
    reading = await drafter.read(ids[:start] + mixed, start)
    chosen = torch.tensor(kept)
    hidden = reading.hidden[1:].float().cpu()
    return Drafted(hidden[chosen].clone(), torch.tensor(accepted)[chosen])


def sampling_of(path: Path, temperature: float | None = None, skipped: Skipped | None = None) -> Sampling:
    """How the file's answers were drawn, which labels must follow too; temperature stands in where the file doesn't say.

    Raises ValueError where its lines differ, or the given temperature isn't theirs, and names a line that can't be read;
    with skipped such lines are counted there and left out.
    """
    found = {law for _, law in made_of(path, _drawn_by, skipped)} - {None}
    if len(found) > 1:
        raise ValueError(f"{path} holds answers of several temperatures or top_p; give one file for each")
    if not found:
        return Sampling(1.0 if temperature is None else temperature)
    known, top_p = next(law for law in found if law is not None)
    if temperature not in (None, known):
        raise ValueError(
            f"the answers in {path} were drawn at temperature {known}, so labels can't be of {temperature}"
        )
    return Sampling(known, top_p=top_p)


def _drawn_by(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """Temperature and top_p of an answer, where its line says how it was drawn."""
    made = entry.get("made_by")
    if not isinstance(made, dict) or "temperature" not in made:
        return None
    drawn = made["temperature"], made.get("top_p", 1.0)
    if not all(type(one) in (int, float) for one in drawn):
        raise ValueError(f'"made_by" must have numbers as temperature and top_p, got {drawn[0]!r} and {drawn[1]!r}')
    return float(drawn[0]), float(drawn[1])
