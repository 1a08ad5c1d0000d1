"""How policies are built, and what they read from a step.

Each rule has its own file; the keyword-only arguments of build are its options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from ..core.policy import LengthPolicy
from ..core.values import Signals, Step
from .registry import POLICIES

__all__ = [
    "POLICIES",
    "PolicyFactory",
    "Readings",
    "best",
    "confidence",
    "entropy",
    "has_row",
    "signals_of",
    "top_probabilities",
]

T = TypeVar("T")


PolicyFactory = Callable[[], LengthPolicy]


def confidence(step: Step) -> float:
    """The draft's probability of its token: by the law it was drawn from, else by the softmax of its unprocessed row.

    Without either, the step's own confidence, and 1 for a drafter that gives none (lookup). 0 where the row has no softmax.
    For a step of several nodes, the largest.
    """
    if step.signals is not None:
        return step.signals.confidence
    if step.confidence is not None:
        return step.confidence
    if step.share is not None:
        return step.share
    if step.logits is None:
        return max((law.probability(token) if law else 1.0 for law, token in zip(step.laws, step.tokens, strict=True)))
    values: list[float] = []
    for i, (token, law) in enumerate(zip(step.tokens, step.laws, strict=True)):
        row = step.logits[min(i, step.logits.shape[0] - 1)]
        probability = law.probability(token) if law else _share(row, token)
        values.append(0.0 if probability != probability else probability)
    return max(values)


def _share(row: Tensor, token: int) -> float:
    """A token's probability in the softmax of a row; NaN where it has none.

    On a CPU one thread adds up: torch's would be woken for some ten microseconds of work, and then wait awake.
    """
    scores = row.float()
    if scores.device.type != "cpu":
        return float((scores[token] - scores.logsumexp(-1)).exp())
    values = scores.detach().numpy()
    with np.errstate(invalid="ignore"):
        most = values.max()
        return float(np.exp(values[token] - most) / np.exp(values - most).sum())


def best(step: Step) -> float:
    """The largest probability of the draft's unprocessed row, whichever token was drawn; 1 without a row.

    For a step of several rows, the largest.
    """
    if step.signals is not None:
        return step.signals.best
    return float(_surest_row(step).max())


def entropy(step: Step) -> float:
    """The entropy in nats of the draft's unprocessed row, the surest of several; 0 without a row."""
    if step.signals is not None:
        return step.signals.entropy
    return float(torch.special.entr(_surest_row(step)).sum())


def top_probabilities(step: Step, k: int) -> tuple[float, ...]:
    """The k largest probabilities of the draft's unprocessed row in descending order, the surest of several.

    Padded with zeros if the vocabulary is smaller. Raises ValueError if recorded signals hold fewer than k.
    """
    if step.signals is None:
        row = _surest_row(step)
        top = tuple(row.topk(min(k, row.shape[-1])).values.tolist())
        return top + (0.0,) * (k - len(top))
    if len(step.signals.top) < k:
        raise ValueError(f"the recorded signals hold {len(step.signals.top)} top probabilities, {k} are needed")
    return step.signals.top[:k]


def signals_of(step: Step, k: int = 10) -> Signals | None:
    """All of the above together, for traces; None for a step without a row (lookup)."""
    if step.signals is not None or not has_row(step):
        return step.signals
    return Signals(confidence(step), best(step), entropy(step), top_probabilities(step, k))


def has_row(step: Step) -> bool:
    """Whether the drafter computed a law for the step, so that it has a confidence; lookup doesn't."""
    return step.logits is not None or step.signals is not None or any(step.laws)


@final
class Readings(Generic[T]):
    """The values of a function for each step of the current draft, computed once per step."""

    def __init__(self, read: Callable[[Step], T]) -> None:
        self._read = read
        self._steps: list[Step] = []
        self._values: list[T] = []

    def of(self, steps: Sequence[Step]) -> Sequence[T]:
        held, values = self._steps, self._values
        known = 0
        for own, step in zip(held, steps, strict=False):
            if own is not step:
                break
            known += 1
        del held[known:], values[known:]
        for step in steps[known:]:
            held.append(step)
            values.append(self._read(step))
        return values

    def clear(self) -> None:
        """After a round; a policy must not keep its rows."""
        self._steps.clear()
        self._values.clear()


def _surest_row(step: Step) -> Tensor:
    """Probabilities [V] of the row with the largest one; a point mass where the drafter gives no row."""
    if step.logits is None:
        return torch.ones(1)
    rows = [step.logits[i].float().softmax(-1) for i in range(step.logits.shape[0])]
    return max(rows, key=lambda row: float(row.max()))
