"""From measured speed-ups to a sentence: helped, cost time, no clear difference, or not to be told."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING

from .compare import verdict

if TYPE_CHECKING:
    from ..bench.comparison import Comparison

# a speed-up counts where even its lower quartile is this far above 1, a slow-down where its upper one is as far below
CLEAR = 0.05
# by how much a speed-up may exceed the tokens per round, which bound it unless the machine did other things meanwhile
NOISE = 1.15


def conclusion(name: str, found: Mapping[str, Comparison]) -> str:
    """What the numbers say about a method; found: kind of prompts -> its comparison."""
    said = [f"{effect(one)} on {kind}" for kind, one in found.items()]
    unequal = [verdict(one) for one in found.values() if not one.identical]
    return " ".join([f"{name}: {'; '.join(said)}.", *unequal])


def effect(found: Comparison) -> str:
    """How a method did, by where the quartiles of its repeats lie."""
    from ..bench.comparison import spread

    ratios, bound = found.ratios, found.speculative.stats.tokens_per_round
    low, high = spread(ratios)
    if median(ratios) > bound * NOISE:
        return (
            f"can't be told ({median(ratios):.2f} times as fast, more than its {bound:.2f} tokens a round explain: the "
            "machine was busy, run it again)"
        )
    if len(ratios) == 1:
        return f"can't be told from a single run ({median(ratios):.2f} times as fast)"
    if low > 1 + CLEAR:
        return f"helped ({median(ratios):.2f} times as fast)"
    if high < 1 - CLEAR:
        return f"cost time ({median(ratios):.2f} times as fast)"
    return f"made no clear difference ({low:.2f} to {high:.2f} times as fast)"
