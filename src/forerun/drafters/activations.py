"""In how many bits a draft holds the rows that native products take."""

from __future__ import annotations

from dataclasses import replace

from ..models.packed.plan import LayerPlan
from ..models.packed.runner import Runner


def drafted_in(runner: Runner, plan: LayerPlan, bits: int | None) -> LayerPlan:
    """The plan with these activations; unchanged where they are the runner's own, or None, so that its rows may resume.

    Raises UnsupportedOption where the runner has no such activations.
    """
    if bits is None or bits == runner.activations:
        return plan
    held = replace(plan, activations=bits)
    runner.check_plan(held)
    return held
