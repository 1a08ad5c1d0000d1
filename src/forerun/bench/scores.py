"""Figures from a backend's samples on some prompts: rates, speed-ups, equality, acceptance.

Each rate is given twice: the median over the prompts, and the total (all tokens over all seconds), which is what a user of
this mixture of prompts gets. A speed-up is over plain decoding of the same weights, paired by prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.stats import Stats
from .backend import Sample
from .difference import shared_length
from .intervals import Estimate, median_of, ratio_of_rates, ratio_of_sums


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """samples, base (plain decoding of the same weights) and plain (forerun's) answer the same prompts, in order.

    base is None if it failed.
    """

    samples: Sequence[Sample]
    base: Sequence[Sample] | None
    plain: Sequence[Sample]

    @property
    def tokens_per_second(self) -> Estimate | None:
        return median_of([rate for rate in (sample.tokens_per_second for sample in self.samples) if rate is not None])

    @property
    def speedup(self) -> Estimate | None:
        """The median of the prompts' ratios."""
        if self.base is None:
            return None
        rates = [
            (one.tokens_per_second, two.tokens_per_second) for one, two in zip(self.samples, self.base, strict=True)
        ]
        return median_of([a / b for a, b in rates if a is not None and b is not None])

    @property
    def total_tokens_per_second(self) -> Estimate | None:
        return ratio_of_sums(*totals(self.samples))

    @property
    def total_speedup(self) -> Estimate | None:
        return None if self.base is None else ratio_of_rates(*totals(self.samples), *totals(self.base))

    @property
    def against_plain(self) -> Estimate | None:
        """Total tokens a second over those of forerun's plain decoding."""
        return ratio_of_rates(*totals(self.samples), *totals(self.plain))

    @property
    def first_token_seconds(self) -> Estimate | None:
        return median_of([sample.first_seconds for sample in self.samples])

    @property
    def identical_prompts(self) -> int:
        """For how many prompts the tokens equal plain decoding's."""
        return sum(one.ids == two.ids for one, two in zip(self.samples, self.base or (), strict=False))

    @property
    def match_rate(self) -> float | None:
        """The share of plain decoding's tokens before the first difference, over all prompts."""
        if self.base is None:
            return None
        whole = sum(len(two.ids) for two in self.base)
        same = sum(shared_length(one.ids, two.ids) for one, two in zip(self.samples, self.base, strict=True))
        return same / whole if whole else None

    @property
    def peak_mb(self) -> float:
        return max(sample.peak_mb for sample in self.samples)

    @property
    def stats(self) -> Stats | None:
        """Over all prompts; None for a peer, which doesn't report them."""
        total = Stats()
        for sample in self.samples:
            if sample.stats is None:
                return None
            total.merge(sample.stats)
        return total

    def as_dict(self) -> dict[str, Any]:
        stats = self.stats
        return {
            "prompts": len(self.samples),
            "decoded_tokens": sum(sample.decoded for sample in self.samples),
            **_named("tokens_per_second", self.tokens_per_second),
            **_named("speedup", self.speedup),
            **_named("total_tokens_per_second", self.total_tokens_per_second),
            **_named("total_speedup", self.total_speedup),
            **_named("against_plain", self.against_plain),
            **_named("first_token_seconds", self.first_token_seconds),
            "identical": None if self.base is None else self.identical_prompts == len(self.samples),
            "identical_prompts": None if self.base is None else self.identical_prompts,
            "match_rate": self.match_rate,
            "peak_memory_mb": round(self.peak_mb, 1),
            "acceptance": None if stats is None else _acceptance(stats),
            "seconds": None if stats is None else _split(stats, self.samples),
        }


def totals(samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Decoded tokens and seconds by prompt."""
    return [float(sample.decoded) for sample in samples], [sample.decode_seconds for sample in samples]


def _named(name: str, figure: Estimate | None) -> dict[str, Any]:
    if figure is None:
        return {name: None, f"{name}_interval": None}
    return {name: round(figure.value, 4), f"{name}_interval": [round(figure.low, 4), round(figure.high, 4)]}


def _acceptance(stats: Stats) -> dict[str, Any]:
    return {
        "rounds": stats.rounds,
        "tokens_per_round": stats.tokens_per_round,
        "drafted_per_round": stats.drafted / stats.rounds if stats.rounds else 0.0,
        "acceptance": stats.acceptance,
        "acceptance_per_position": list(stats.acceptance_per_position),
        "discard_rate": stats.discard_rate,
        "verification_rate": stats.verification_rate,
    }


def _split(stats: Stats, samples: Sequence[Sample]) -> dict[str, float]:
    """The parts of the time after the first token; verify: the target's forwards, other: everything else."""
    parts = {
        "draft": stats.draft_seconds,
        "verify": stats.forward_seconds,
        "law": stats.law_seconds,
        "keep": stats.keep_seconds,
    }
    whole = sum(sample.decode_seconds for sample in samples)
    return {**parts, "other": max(whole - sum(parts.values()), 0.0)}
