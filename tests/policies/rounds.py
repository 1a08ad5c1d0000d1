"""Steps and rounds to show to a policy."""

import torch

from forerun.core.law import Categorical
from forerun.core.policy import LengthPolicy
from forerun.core.values import Draft, Round, Signals, Step, Timing, Verdict


def step(confidence: float = 0.5) -> Step:
    """A drawn token that its draft gives this probability."""
    return Step((0,), (-1,), (Categorical(torch.tensor([confidence, 1 - confidence])),))


def recorded(confidence: float = 0.5, best: float = 0.5, entropy: float = 0.0) -> Step:
    """A token of a trace."""
    return Step((0,), (-1,), (None,), signals=Signals(confidence, best, entropy))


def copied() -> Step:
    """A token of lookup: no row, no law."""
    return Step((0,), (-1,), (None,))


def counted(confidence: float = 0.5) -> Step:
    """A copied token that its drafter has a confidence for."""
    return Step((0,), (-1,), (None,), confidence=confidence)


def chain(*confidences: float) -> list[Step]:
    return [step(confidence) for confidence in confidences]


def round_of(steps: list[Step], accepted: int, draft_seconds: float = 0.0, seconds: float = 0.0) -> Round:
    nodes = len(steps)
    draft = Draft((0,) * nodes, tuple(range(-1, nodes - 1)), tuple(step.laws[0] for step in steps))
    verdict = Verdict(tuple(range(accepted)), (0,) * (accepted + 1))
    timing = Timing(draft=draft_seconds, draft_forward=draft_seconds, forward=seconds)
    return Round((0,) * (accepted + 1), draft, verdict, 5, timing=timing)


def observe(policy: LengthPolicy, drafted: int, accepted: int) -> None:
    """Show a round of so many drafted tokens, of which the first were accepted."""
    steps = chain(*[0.5] * drafted)
    policy.observe(steps, round_of(steps, accepted))
