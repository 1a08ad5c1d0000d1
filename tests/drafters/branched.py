"""Drafts of trees and graphs, level by level, without the loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from forerun import Engine
from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.values import ROOT, Context, Draft, Sampling, Step

IDS = [5, 6, 7, 8, 5, 6]
GREEDY = Sampling()


def drafted(
    engine: Engine, levels: int, sampling: Sampling = GREEDY, ids: Sequence[int] = IDS, **more: Any
) -> list[Step]:
    """The first levels of a draft after these tokens, the last of which is pending."""

    async def steps() -> AsyncGenerator[list[Step]]:
        with engine.borrow(ids) as (sequence, drafter):
            await sequence.sync(ids[:-1], drafter.taps)
            found: list[Step] = []
            async for step in drafter.draft(Context(list(ids), Seeded(4), sampling, **more)):
                found.append(step)
                if len(found) == levels:
                    break
            yield found

    return next(drive(steps()))


def paths(draft: Draft) -> list[tuple[int, ...]]:
    """The tokens that lead to each node, its own the last."""
    found: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        found.append((*(found[parent] if parent != ROOT else ()), token))
    return found
