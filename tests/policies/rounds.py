"""Steps and rounds to show to a policy."""

import torch

from forerun.core import Draft, Round, Step, Verdict
from forerun.law import Categorical


def step(confidence: float = 0.5) -> Step:
    """A drawn token that its draft gives this probability."""
    return Step((0,), (-1,), (Categorical(torch.tensor([confidence, 1 - confidence])),))


def chain(*confidences: float) -> list[Step]:
    return [step(confidence) for confidence in confidences]


def round_of(steps: list[Step], accepted: int) -> Round:
    nodes = len(steps)
    draft = Draft((0,) * nodes, tuple(range(-1, nodes - 1)), tuple(step.laws[0] for step in steps))
    return Round((0,) * (accepted + 1), draft, Verdict(tuple(range(accepted)), (0,) * (accepted + 1)), 5)
