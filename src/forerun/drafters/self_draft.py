"""The target drafts for itself with part of its layers, on its own keys and values.

exit_layer runs layers 0..E-1, the final norm and the head; verification goes on from the exit states, so only the last
drafted token passes the first E layers again (LayerSkip). skip_attention and skip_mlp leave out single sublayers
(Draft & Verify): drafting reads the true prefix, and verification computes every row anew.

Sources: Elhoushi et al., LayerSkip, arXiv 2404.16710, section 5; Zhang et al., Draft & Verify, arXiv 2309.08168.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import final

from ..core import ROOT, Context, Step
from ..errors import UnsupportedOption
from ..models.plan import LayerPlan
from ..models.sequence import Sequence
from .base import DRAFTERS, Drafter, DrafterFactory, Parts
from .chain import next_step


@final
class SelfDraft(Drafter):
    def __init__(self, target: Sequence, plan: LayerPlan) -> None:
        self._target = target
        self._plan = plan

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        token, node = context.ids[-1], ROOT
        drafted: list[int] = []
        while True:
            rows = await self._target.forward([token], plan=self._plan)
            step = next_step(rows, context, drafted)
            yield step
            token, node = step.tokens[0], node + 1
            drafted.append(token)


@DRAFTERS("self", source="Elhoushi et al., arXiv 2404.16710; Zhang et al., arXiv 2309.08168")
def build(
    parts: Parts,
    *,
    exit_layer: int | None = None,
    skip_attention: tuple[int, ...] = (),
    skip_mlp: tuple[int, ...] = (),
) -> DrafterFactory:
    """The target itself with layers left out: an early exit, or skipped sublayers."""
    num_layers = parts.target.runner.num_layers
    if exit_layer is not None and (skip_attention or skip_mlp):
        raise UnsupportedOption(
            "drafter 'self' takes exit_layer or skip sets, not both: rows of a mixed plan can't be completed"
        )
    if exit_layer is not None:
        plan = LayerPlan.early_exit(exit_layer, num_layers)
    else:
        plan = LayerPlan.skip(num_layers, skip_attention, skip_mlp)
    parts.target.runner.check_plan(plan)
    return lambda target: SelfDraft(target, plan)
