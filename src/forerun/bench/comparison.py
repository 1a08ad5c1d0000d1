"""The result of comparing plain and speculative decoding, and figures derived from it.

Predicted speed-up = tokens per round / (k c + v), with k draft steps per round, and c and v the costs of a draft step and a
verification in plain steps (Yan et al., arXiv 2402.01528; with v = 1, Elhoushi et al., arXiv 2404.16710). If the measured
speed-up is lower, time is spent on neither drafting nor forwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

from ..engine.stats import Stats
from .difference import Difference, shared_length
from .measure import Run


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The runs of one method: for each repeat, a run for each question."""

    repeats: tuple[tuple[Run, ...], ...]

    @property
    def rates(self) -> list[float]:
        """Decoded tokens a second, by repeat."""
        return [sum(run.decoded for run in runs) / sum(run.seconds for run in runs) for runs in self.repeats]

    @property
    def stats(self) -> Stats:
        """Of all runs together."""
        total = Stats()
        for run in (run for runs in self.repeats for run in runs):
            for answer in run.answers:
                total.merge(answer.stats)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """difference is the first token that differed in any repeat, None if every output was equal."""

    plain: Side
    speculative: Side
    difference: Difference | None
    sampled: bool
    rounding_margin: float

    @property
    def identical(self) -> bool:
        return self.difference is None

    @property
    def verdict(self) -> str:
        """equal, sampled (drawn drafts keep the law, not the tokens), rounding (another choice in a near-tie) or bug."""
        if self.difference is None:
            return "equal"
        if self.sampled:
            return "sampled"
        return "rounding" if self.difference.margin <= self.rounding_margin else "bug"

    @property
    def ratios(self) -> list[float]:
        """Speculative over plain tokens a second, by repeat."""
        return [b / a for a, b in zip(self.plain.rates, self.speculative.rates, strict=True)]

    @property
    def speedup(self) -> float:
        return median(self.ratios)

    @property
    def match_rate(self) -> float:
        """The share of the plain outputs' tokens before the first difference of each answer."""
        pairs = [
            (a, b)
            for one, other in zip(self.plain.repeats[0], self.speculative.repeats[0], strict=True)
            for a, b in zip(one.ids, other.ids, strict=True)
        ]
        return sum(shared_length(a, b) for a, b in pairs) / sum(len(a) for a, _ in pairs)

    def as_dict(self) -> dict[str, Any]:
        stats, costs = self.speculative.stats, self.costs()
        low, high = spread(self.ratios)
        return {
            "identical": self.identical,
            "verdict": self.verdict,
            "match_rate": self.match_rate,
            "first_difference": None if self.difference is None else asdict(self.difference),
            "speedup": self.speedup,
            "speedup_quartiles": [low, high],
            "plain_tokens_per_second": median(self.plain.rates),
            "speculative_tokens_per_second": median(self.speculative.rates),
            "tokens_per_round": stats.tokens_per_round,
            "acceptance": stats.acceptance,
            "acceptance_per_position": list(stats.acceptance_per_position),
            "discard_rate": stats.discard_rate,
            "verification_rate": stats.verification_rate,
            **costs,
            "questions": len(self.plain.repeats[0]),
            "repeats": len(self.plain.repeats),
            "decoded_tokens": sum(run.decoded for run in self.speculative.repeats[0]),
        }

    def costs(self) -> dict[str, float | None]:
        """Measured costs in plain steps, and the speed-ups that they predict; None where nothing was drafted."""
        plain, stats = self.plain.stats, self.speculative.stats
        step = plain.verify_seconds / plain.rounds
        verification = stats.verify_seconds / stats.rounds / step
        drafting = stats.draft_seconds / stats.rounds / step
        return {
            "draft_cost_ratio": stats.draft_seconds / stats.drafted / step if stats.drafted else None,
            "verify_cost_ratio": verification,
            "predicted_speedup": stats.tokens_per_round / (drafting + verification),
            "predicted_speedup_free_width": stats.tokens_per_round / (drafting + 1),
        }


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper quartile."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high
