"""The loop: prompt ids -> prefill -> (draft -> verify -> keep -> yield) until done. One loop serves every method."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import perf_counter

from torch import Tensor

from .core import ROOT, Context, Draft, Round, Step
from .drafters.base import Drafter
from .law import Law, PointMass
from .models.sequence import Sequence
from .policies.base import LengthPolicy
from .sampling import greedy_tokens, law
from .verify import RowLaw, verify


async def decode(target: Sequence, drafter: Drafter, policy: LengthPolicy, context: Context) -> AsyncGenerator[Round]:
    """Yield a round at a time until the context is finished. The first round is the prefill, with an empty draft.

    The target's law decides every token (verify.py), whatever drafter and policy do.
    """
    if context.room <= 0:
        return
    begun = perf_counter()
    rows = await target.sync(context.ids)
    yield _finish(Draft(), rows.logits, context, begun, begun)
    while context.finish_reason is None:
        begun = perf_counter()
        steps = await _collect(drafter, policy, context)
        draft = Draft.of(steps)
        drafted = perf_counter()
        rows = await target.complete(
            [context.ids[-1], *draft.tokens], [ROOT, *(parent + 1 for parent in draft.parents)]
        )
        round = _finish(draft, rows.logits, context, begun, drafted)
        target.keep([0, *(node + 1 for node in round.verdict.path)])
        policy.observe(steps, round)
        yield round


async def _collect(drafter: Drafter, policy: LengthPolicy, context: Context) -> list[Step]:
    """Pull steps while there is room for them and the token that the target adds; an end of sequence ends a chain."""
    steps: list[Step] = []
    async with aclosing(drafter.draft(context)) as source:
        while len(steps) < context.room - 1 and not policy.should_stop(steps):
            step = await anext(source, None)
            if step is None:
                break
            steps.append(step)
            if all(token in context.eos for token in step.tokens):
                break
    return steps


def _finish(draft: Draft, logits: Tensor, context: Context, begun: float, drafted: float) -> Round:
    start = len(context.ids)
    verdict = verify(draft, _row_laws(logits, context), context.chance, start)
    tokens = context.extend(verdict.tokens)
    rows = [0, *(node + 1 for node in verdict.path)][: len(tokens)]
    return Round(
        tokens=tokens,
        draft=draft,
        verdict=verdict,
        start=start,
        prefill=start == context.prompt_length,
        draft_seconds=drafted - begun,
        verify_seconds=perf_counter() - drafted,
        logits=logits[rows] if context.keep_logits else None,
    )


def _row_laws(logits: Tensor, context: Context) -> RowLaw:
    """The target's law by row. Greedy rows without history are read off together, in one transfer."""
    sampling = context.sampling
    if sampling.temperature == 0 and not sampling.uses_history:
        best = greedy_tokens(logits)
        return lambda row, drafted: PointMass(best[row])

    def row_law(row: int, drafted: tuple[int, ...]) -> Law:
        prefix = [*context.ids, *drafted] if sampling.uses_history else ()
        return law(logits[row], sampling, prefix, context.prompt_length)

    return row_law
