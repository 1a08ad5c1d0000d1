"""A trained classifier of the draft's law decides whether to continue drafting.

After each draft step it reads the law's largest probabilities, its entropy and the step's place in the draft, and predicts
whether the target accepts. Drafting continues while its output is at least tau. It reads the law alone, not the token
that was drawn from it, so the output stays exact.

Source: Mamou et al., DISCO, arXiv 2405.04304.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from ..models.files.classifier_heads import LOOKAHEAD, LookaheadClassifier, read_classifier_head
from .base import POLICIES, PolicyFactory, entropy, has_row, top_probabilities
from .usual_length import UsualLength


@final
class Disco(LengthPolicy):
    def __init__(self, classifier: LookaheadClassifier, tau: float, max_steps: int) -> None:
        self.trained_for = classifier.pair
        self._classifier, self._tau, self._max_steps = classifier, tau, max_steps
        self._usual = UsualLength()

    def should_stop(self, steps: Sequence[Step]) -> bool:
        if not steps or not has_row(steps[-1]):
            return len(steps) >= self._max_steps
        last = steps[-1]
        says = self._classifier.accepted(top_probabilities(last, self._classifier.top), entropy(last), len(steps))
        return len(steps) >= self._max_steps or says < self._tau

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._usual.after(len(steps), self._max_steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._usual.learn(len(steps))


@POLICIES("disco", source="Mamou et al., arXiv 2405.04304")
def build(*, classifier: str, tau: float | None = None, max_steps: int = 20) -> PolicyFactory:
    """Draft while a classifier of `forerun train disco` predicts at least tau (chosen in training)."""
    if tau is not None and not 0 <= tau <= 1:
        raise ValueError(f"tau must be in [0, 1], got {tau}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    trained = LookaheadClassifier(read_classifier_head(LOOKAHEAD, Path(classifier)))
    bound = trained.threshold if tau is None else tau
    return lambda: Disco(trained, bound, max_steps)
