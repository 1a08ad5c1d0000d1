"""Which threshold of a stop rule is the fastest, by the draft lengths that it gives on held-out drafts.

Drafting k tokens and checking them takes k c + 1 target forwards, c being a draft step's cost, and emits the accepted tokens
and one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

THRESHOLDS = tuple(step / 20 for step in range(1, 20))


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """n drafts of up to `depth` tokens: what the rule reads after each token, and whether that is accepted, [n, depth].

    The rule stops after the first token whose value is below the threshold. accepted holds probabilities, given that all
    tokens before were accepted; ends [n] says how many tokens a draft has.
    """

    values: Tensor
    accepted: Tensor
    ends: Tensor


def drafts_of(chains: Iterable[tuple[Sequence[float], Sequence[float]]], depth: int) -> Drafts:
    """From chains (values, accepted), each cut at depth and padded at the end. Raises ValueError where there is none."""
    known = [(values[:depth], accepted[:depth]) for values, accepted in chains if len(values)]
    if not known:
        raise ValueError("there is no held-out draft to choose a threshold by")
    values, accepted = (torch.zeros(len(known), depth) for _ in range(2))
    for row, (read, right) in enumerate(known):
        values[row, : len(read)] = torch.tensor(list(read))
        accepted[row, : len(right)] = torch.tensor(list(right))
    return Drafts(values, accepted, torch.tensor([len(read) for read, _ in known]))


def time_per_token(drafts: Drafts, threshold: float, cost: float, least: int = 1) -> float:
    """Target forwards' worth of time for an emitted token, where a round begins at each of the drafts."""
    places = torch.arange(1, drafts.values.shape[1] + 1)
    stops = (drafts.values < threshold) & (places >= least)
    first = torch.where(stops, places, places[-1]).amin(1)
    lengths = torch.minimum(first, drafts.ends)
    survives = drafts.accepted.cumprod(1) * (places <= lengths[:, None])
    return float((lengths * cost + 1).sum() / (survives.sum(1) + 1).sum())


def best_threshold(drafts: Drafts, cost: float, least: int = 1) -> tuple[float, float]:
    """The fastest of THRESHOLDS, and its time per token."""
    if not cost > 0:
        raise ValueError(f"a draft step's cost must be above 0 target forwards, got {cost}")
    times = {one: time_per_token(drafts, one, cost, least) for one in THRESHOLDS}
    best = min(times, key=lambda one: times[one])
    return best, times[best]
