"""A trained head predicts for each drafted token whether the target accepts it; stop when a rejection has become likely.

A drafted token's acceptance is predicted from the row that reads it, which is only computed to draft the next token. So the
rule uses all drafted tokens but the last. It stops when 1 - (product of their predicted acceptances) exceeds h.
By the paper's theorem the best h is (c2 + D) / (c1 + c2 + D) for costs c1 of a discarded token and c2 of a verification;
D is unknown, so h is chosen on held-out texts in training. The last token isn't used, so the output stays exact.

Source: Huang et al., SpecDec++, arXiv 2405.19715.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from ..models.files.classifier_heads import ACCEPTANCE, AcceptanceHead, read_classifier_head
from .base import POLICIES, PolicyFactory
from .usual_length import UsualLength


@final
class PredictedAcceptance(LengthPolicy):
    def __init__(self, head: AcceptanceHead, h: float, min_steps: int, max_steps: int) -> None:
        self.trained_for = head.pair
        self._head, self._h = head, h
        self._min, self._max = min_steps, max_steps
        self._usual = UsualLength()
        self._scored = 0
        self._survives = 1.0

    def should_stop(self, steps: Sequence[Step]) -> bool:
        # the first step's row read a token that is verified already
        for step in steps[max(self._scored, 1) :]:
            if step.hidden is not None:
                self._survives *= self._head.accepted(step.hidden)
        self._scored = len(steps)
        if len(steps) < self._min:
            return False
        return len(steps) >= self._max or 1 - self._survives > self._h

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._usual.after(len(steps), self._max)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._usual.learn(len(steps))
        self._scored, self._survives = 0, 1.0


@POLICIES("acceptance_head", source="Huang et al., arXiv 2405.19715")
def build(
    *, head: str, h: float | None = None, min_steps: int = 2, max_steps: int = 20, calibrate: bool = True
) -> PolicyFactory:
    """Stop when a head of `forerun train acceptance-head` gives a rejection a probability above h (chosen in training).

    calibrate undoes the weight of rejections in training, so that h is a probability.
    """
    if h is not None and not 0 <= h <= 1:
        raise ValueError(f"h must be in [0, 1], got {h}")
    if not 0 <= min_steps <= max_steps or max_steps < 1:
        raise ValueError(
            f"bounds must be 0 <= min_steps <= max_steps and max_steps >= 1, got {min_steps} and {max_steps}"
        )
    trained = AcceptanceHead(read_classifier_head(ACCEPTANCE, Path(head)), head, calibrate)
    bound = trained.threshold if h is None else h
    return lambda: PredictedAcceptance(trained, bound, min_steps, max_steps)
