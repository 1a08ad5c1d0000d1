"""What a drafter's rounds cost now, measured with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.cost import Costs
from ..terminal import progress

if TYPE_CHECKING:
    from ...engine.engine import Engine

COST_PROMPTS = 3


def measured_rounds(
    engine: Engine, drafter: str, prompts: Sequence[Sequence[int]], depth: int, weights: str, count: int = COST_PROMPTS
) -> Costs | None:
    """Measured on so many of the prompts, from the shortest to the longest; None for a count of 0.

    weights: their name in the costs.
    """
    from ...tune.replay.round_costs import count_answers, measure, spread_out

    if not count:
        return None
    some = spread_out(prompts, count)
    with progress("measuring rounds", count_answers(len(some), depth)) as tick:
        return measure(engine, drafter, some, depth, weights=weights, tick=tick)
