"""What a length policy is, and the table of all policies.

A policy decides when a draft is long enough. It may stop, it can't remove a token, and it never sees the target's law of
the running round, so it can't bias the output. One file a rule; build's keyword-only arguments are its options.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ..core import Round, Step
from ..registry import Registry


class LengthPolicy(ABC):
    """Decides for one request."""

    @abstractmethod
    def should_stop(self, steps: Sequence[Step]) -> bool:
        """Whether the draft made of these steps is long enough.

        Asked before the first pull too, with no steps: True then drafts nothing this round.
        """

    def observe(self, steps: Sequence[Step], round: Round) -> None:  # noqa: B027
        """Learn from a finished round: the draft's signals, the verdict and the times."""


PolicyFactory = Callable[[], LengthPolicy]

POLICIES: Registry[Callable[..., PolicyFactory]] = Registry("policy")


def confidence(step: Step) -> float:
    """The draft's probability of its token: of the law it was drawn from, else the softmax of its unprocessed row.

    1 for a drafter that gives neither (lookup). For a step of several nodes, the largest.
    """
    if step.logits is None:
        return max((law.probability(token) if law else 1.0 for law, token in zip(step.laws, step.tokens, strict=True)))
    values: list[float] = []
    for i, (token, law) in enumerate(zip(step.tokens, step.laws, strict=True)):
        row = step.logits[min(i, step.logits.shape[0] - 1)]
        values.append(law.probability(token) if law else float((row[token].float() - row.float().logsumexp(-1)).exp()))
    return max(values)
