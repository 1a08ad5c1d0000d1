"""The parts of a round's time, and advice that follows from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .comparison import Side

# Above this share, what is not a forward is worth looking at.
OVERHEAD = 0.05


@dataclass(frozen=True, slots=True)
class Profile:
    """Mean seconds per round, for decoding alone.

    law: from logits to distributions. verify: the rule of acceptance. cache: keeping the accepted rows. python:
    everything else, from drafting logic to text.
    native: what of all this is inside native code, 0 where none runs.
    """

    draft_forward: float
    verify_forward: float
    law: float
    verify: float
    cache: float
    python: float
    tokens_per_round: float
    native: float = 0.0

    @property
    def total(self) -> float:
        return self.draft_forward + self.verify_forward + self.law + self.verify + self.cache + self.python

    @property
    def overhead(self) -> float:
        """The share of a round outside of forwards."""
        return 1 - (self.draft_forward + self.verify_forward) / self.total

    def rows(self) -> list[tuple[str, float, float]]:
        """Name, seconds, share of the round, in the order of a round."""
        parts = {name: value for name, value in asdict(self).items() if name not in ("tokens_per_round", "native")}
        return [(name.replace("_", " "), value, value / self.total) for name, value in parts.items()]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "total": self.total, "overhead": self.overhead, "outside": self.total - self.native}

    def advice(self) -> str:
        """One sentence."""
        told = f"{self.overhead:.1%} of a round is no forward"
        if self.overhead > OVERHEAD:
            most = max((value, name) for name, value, _ in self.rows() if not name.endswith("forward"))
            return f"{told}, most of it {most[1]}: the forwards are so fast that this is worth cutting."
        if self.draft_forward > self.verify_forward:
            return f"{told}; drafting takes longer than verifying, so a cheaper or a shorter draft is what to try."
        if self.tokens_per_round < 1.2:
            return f"{told}; a round gives {self.tokens_per_round:.2f} tokens, so drafts must be right more often."
        return f"{told}; the time is in verifying, so smaller weights are what makes it faster."


def profile_of(side: Side) -> Profile:
    """The profile of all of a side's runs. Raises ValueError where no round was run."""
    stats = side.stats
    if not stats.rounds:
        raise ValueError("nothing was decoded after the first token, so there is no round to profile")
    seconds = sum(run.seconds for runs in side.repeats for run in runs)
    decide = stats.verify_seconds - stats.forward_seconds - stats.keep_seconds
    known = stats.draft_forward_seconds + stats.verify_seconds
    return Profile(
        draft_forward=stats.draft_forward_seconds / stats.rounds,
        verify_forward=stats.forward_seconds / stats.rounds,
        law=stats.law_seconds / stats.rounds,
        verify=(decide - stats.law_seconds) / stats.rounds,
        cache=stats.keep_seconds / stats.rounds,
        python=max(seconds - known, 0.0) / stats.rounds,
        tokens_per_round=stats.tokens_per_round,
        native=stats.native_seconds / stats.rounds,
    )
