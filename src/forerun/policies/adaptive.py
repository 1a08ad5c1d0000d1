"""Stop after an unlikely token, with a threshold that moves until a given share of tokens is accepted.

After each round with a draft, A <- beta1 A + (1 - beta1) accepted / drafted. If A is below alpha, drafts were too long and
the threshold rises by epsilon, else it falls; beta2 smooths the change. The released code keeps the threshold if a draft of
full length was accepted well enough. The paper doesn't, and lets it rise at A = alpha too.

Source: Zhang et al., Draft & Verify, arXiv 2309.08168, its adaptive draft exit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from .base import POLICIES, PolicyFactory, best, confidence
from .usual_length import UsualLength

SIGNALS: dict[str, Callable[[Step], float]] = {"token": confidence, "best": best}
RULES = ("code", "paper")


@final
class Bar:
    """The threshold and the smoothed share of accepted tokens."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.accepted = 0.0


@final
class Aim:
    """How the threshold moves."""

    def __init__(self, alpha: float, epsilon: float, beta1: float, beta2: float, hold: bool) -> None:
        self._alpha = alpha
        self._epsilon = epsilon
        self._beta1 = beta1
        self._beta2 = beta2
        self._hold = hold

    def move(self, bar: Bar, accepted: float, full: bool) -> None:
        """Learn from the accepted share of a round's draft; full: the draft had the greatest length."""
        bar.accepted = self._beta1 * bar.accepted + (1 - self._beta1) * accepted
        low = bar.accepted < self._alpha or (bar.accepted == self._alpha and not self._hold)
        held = self._hold and full
        change = self._epsilon if low else 0.0 if held else -self._epsilon
        wanted = min(max(bar.threshold + change, 0.0), 1.0)
        bar.threshold = self._beta2 * bar.threshold + (1 - self._beta2) * wanted


@final
class Adaptive(LengthPolicy):
    def __init__(self, bar: Bar, aim: Aim, read: Callable[[Step], float], max_steps: int) -> None:
        self._bar = bar
        self._aim = aim
        self._read = read
        self._max_steps = max_steps
        self._usual = UsualLength()

    def should_stop(self, steps: Sequence[Step]) -> bool:
        if len(steps) >= self._max_steps:
            return True
        return bool(steps) and self._read(steps[-1]) < self._bar.threshold

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._usual.after(len(steps), self._max_steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._usual.learn(len(steps))
        if steps:
            share = len(round.verdict.path) / len(steps)
            self._aim.move(self._bar, share, full=len(steps) >= self._max_steps)


@POLICIES("adaptive", source="Zhang et al., Draft & Verify, arXiv 2309.08168")
def build(
    *,
    start: float = 0.6,
    max_steps: int = 12,
    alpha: float = 0.9,
    epsilon: float = 0.01,
    beta1: float = 0.5,
    beta2: float = 0.9,
    rule: str = "code",
    signal: str = "token",
    carry: bool = True,
) -> PolicyFactory:
    """Draft until a probability falls below a threshold that moves towards an acceptance of alpha.

    signal is "token" (the drafted token's probability) or "best" (the row's largest). rule is "code" or "paper". carry
    keeps the threshold from one request to the next.
    """
    shares = {"start": start, "alpha": alpha, "epsilon": epsilon, "beta1": beta1, "beta2": beta2}
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be in [0, 1], got {value}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    if signal not in SIGNALS:
        raise ValueError(f"signal must be one of {', '.join(SIGNALS)}, got {signal!r}")
    aim, read, shared = Aim(alpha, epsilon, beta1, beta2, rule == "code"), SIGNALS[signal], Bar(start)
    return lambda: Adaptive(shared if carry else Bar(start), aim, read, max_steps)
