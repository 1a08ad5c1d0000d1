"""What happened in an answer's rounds: who drafted, how surely, what was expected of it and what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from ..core.drafter import Drafter
from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from ..policies.base import confidence
from ..policies.wrapping import Wrapping


@final
@dataclass(frozen=True, slots=True)
class Explained:
    """A round. drafter: who drafted, "" where nothing was; held_back: since the policy wanted no draft.

    confidences: of the steps, by the drafter's own measure. expected_tokens, expected_time (in plain rounds): of the round,
    before it was verified; None under a policy that forecasts nothing. time: what it took, in seconds.
    """

    drafter: str
    held_back: bool
    confidences: tuple[float, ...]
    drafted: int
    accepted: int
    expected_tokens: float | None
    expected_time: float | None
    time: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def line(self) -> str:
        """In words."""
        if not self.drafted:
            return "held back" if self.held_back else "nothing to draft"
        sure = " ".join(f"{value:.2f}" for value in self.confidences)
        said = [f"{self.drafter}: {self.drafted} drafted, {self.accepted} accepted", f"confidence {sure}"]
        if self.expected_tokens is not None and self.expected_time is not None:
            said.append(f"expected {self.expected_tokens:.2f} tokens in {self.expected_time:.2f} plain rounds")
        return "; ".join(said)


@final
class Explaining(Wrapping):
    """A policy that also tells of its rounds. name: of the drafter, where that doesn't say which one inside it drafted."""

    def __init__(self, inner: LengthPolicy, drafter: Drafter, name: str, told: list[Explained]) -> None:
        super().__init__(inner)
        self._drafter = drafter
        self._name = name
        self._told = told

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return self._inner.should_stop(steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        super().observe(steps, round)
        tokens, time = self.expected or (None, None)
        self._told.append(
            Explained(
                (self._drafter.drafted_by or self._name) if steps else "",
                round.held_back,
                tuple(map(confidence, steps)),
                len(round.draft),
                len(round.verdict.path),
                tokens,
                time,
                round.timing.draft + round.timing.verify,
            )
        )
