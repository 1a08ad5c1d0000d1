"""The target drafts with a part of its own layers, on its own keys and values.

exit_layer runs layers 0..E-1, the final norm and the head; verification continues from the exit states, so only the last
drafted token passes the first E layers again (LayerSkip). skip_attention and skip_mlp leave out single sublayers
(Draft & Verify): drafting reads the true prefix, and verification computes every row anew. weights runs them in a smaller
copy of the weights, whose rows are discarded; vocabulary restricts the head to frequent tokens; activations 8 takes coarser
rows, which are discarded, too. All can be combined.

Sources: Elhoushi et al., LayerSkip, arXiv 2404.16710, section 5; Zhang et al., Draft & Verify, arXiv 2309.08168.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from dataclasses import replace
from pathlib import Path
from typing import final

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.values import ROOT, Context, Step
from ..errors import UnsupportedOption
from ..models.files.plan import read_plan
from ..models.packed.plan import LayerPlan
from ..models.packed.request import Chain
from ..models.packed.sequence import Sequence
from .activations import drafted_in
from .base import DRAFTERS, DrafterFactory, Parts
from .chain import chained, choosing
from .vocabulary import frequent


@final
class SelfDraft(Drafter):
    branches = True
    checks_guesses = True

    def __init__(self, target: Sequence, plan: LayerPlan, draws: bool = True) -> None:
        self._target = target
        self._plan = plan
        self._draws = draws
        self.identity = f"self {_described(plan)}"

    def draft(self, context: Context) -> AsyncGenerator[Step]:
        return chained(self, context if self._draws else choosing(context))

    async def begin(self, context: Context) -> Rows | None:
        return await self._target.forward(context.ids[-1:], plan=self._plan)

    async def go_on(self, context: Context, drafted: Series[int], ahead: int, guesses: Series[int] = ()) -> Rows | None:
        chain = Chain(ahead, self._target.runner.vocab_size, tuple(guesses)) if ahead else None
        # the pending token is the first scratch row, those before it are the row's parents
        last = drafted[-1] if drafted else context.ids[-1]
        return await self._target.forward([last], [len(drafted) - 1], self._plan, chain=chain)

    async def extend(self, tokens: Series[int], parents: Series[int]) -> Rows | None:
        # the pending token is the first scratch row
        return await self._target.forward(tokens, [parent + 1 for parent in parents], plan=self._plan)

    async def read(self, ids: Series[int], given: int) -> Rows:
        """Each row sees the whole model's keys before it, as the first of a draft does; an early exit's own are the same."""
        new = ids[given - 1 :]
        await self._target.sync(ids[: given - 1])
        if self._plan.resumes_at is None:
            await self._target.forward(new, want=0)
        rows = await self._target.forward(new, range(ROOT, len(new) - 1), plan=self._plan)
        self._target.drop()
        return rows


@DRAFTERS("self", source="Elhoushi et al., arXiv 2404.16710; Zhang et al., arXiv 2309.08168")
def build(
    parts: Parts,
    *,
    exit_layer: int | None = None,
    skip_attention: tuple[int, ...] = (),
    skip_mlp: tuple[int, ...] = (),
    plan: str = "",
    weights: str = "",
    vocabulary: int = 0,
    vocabulary_text: str = "",
    activations: int | None = None,
    draws: bool = True,
) -> DrafterFactory:
    """A part of the target: an early exit, skipped sublayers, small weights, a part of the vocabulary.

    activations: bits of the rows that native products take, the target's unless given. plan is a file with a
    skip set, as models.files.plan has it. draws: as draft_model has it.
    """
    runner = parts.target.runner
    if exit_layer is not None and (skip_attention or skip_mlp):
        raise UnsupportedOption(
            "drafter 'self' takes exit_layer or skip sets, not both: rows of a mixed plan can't be completed"
        )
    if plan and (exit_layer is not None or skip_attention or skip_mlp):
        raise UnsupportedOption("drafter 'self' takes a plan file, or exit_layer, or skip sets: one of them")
    if vocabulary_text and not vocabulary:
        raise UnsupportedOption("vocabulary_text needs vocabulary, the number of tokens to keep")
    if plan:
        carved = read_plan(plan, runner.num_layers)
    elif exit_layer is not None:
        carved = LayerPlan.early_exit(exit_layer, runner.num_layers)
    else:
        carved = LayerPlan.skip(runner.num_layers, skip_attention, skip_mlp)
    runner.check_plan(carved)
    if weights:
        runner.add_weights(weights)
        carved = replace(carved, weights=weights)
    if vocabulary:
        tokens = frequent(_tokens_of(vocabulary_text, parts), vocabulary, runner.vocab_size)
        carved = replace(carved, head=runner.add_head(tokens))
    carved = drafted_in(runner, carved, activations)

    def drafter(target: Sequence) -> Drafter:
        runner.check_plan(carved)  # a model object may have changed since
        return SelfDraft(target, carved, draws)

    return drafter


def _described(plan: LayerPlan) -> str:
    left_out = [
        f"{name} {','.join(map(str, sorted(layers)))}"
        for name, layers in (("without attention", plan.attention), ("without mlp", plan.mlp))
        if layers
    ]
    parts = [f"up to layer {plan.exit_layer}"] if plan.exit_layer is not None else left_out
    kinds = (("weights", plan.weights), ("head", plan.head), ("activations", plan.activations))
    named = [f"{name} {value}" for name, value in kinds if value]
    return ", ".join([*parts, *named]) or "whole"


def _tokens_of(file: str, parts: Parts) -> list[int]:
    """The calibration text's tokens; none where no file is named."""
    if not file:
        return []
    if parts.encode is None:
        raise UnsupportedOption("vocabulary_text needs a tokenizer; load the model with one")
    try:
        return parts.encode(Path(file).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"vocabulary_text must be a readable text file, got {file}: {error}") from error
