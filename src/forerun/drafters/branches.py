"""What drafters of trees and graphs share: access to the drafter that they branch, and the state of a branch."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..core.drafter import WITH_LAW, Drafter
from ..core.forward import Rows
from ..core.law import Law, PointMass
from ..core.sampling import ranked
from ..core.values import ROOT, Context, Round
from ..errors import InvalidLogits, UnsupportedOption
from .base import DRAFTERS, DrafterFactory, Parts


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a draft, and the tokens that lead to it, ending with its own. confidence: that they are all accepted.

    row is the number of its row in the branched drafter; ROOT is the pending token's.
    """

    node: int = ROOT
    row: int = ROOT
    path: tuple[int, ...] = ()
    confidence: float = 1.0


def branching(parts: Parts, name: str, of: str, options: Mapping[str, Any]) -> DrafterFactory:
    """The factory of the drafter that `name` branches. Raises UnsupportedOption if it gives no probabilities."""
    make: DrafterFactory = DRAFTERS.check(of, options).build(parts, **options)
    drafter = make(parts.target.acquire())
    drafter.close()
    if not drafter.branches:
        raise UnsupportedOption(
            f"drafter {name!r} can't branch drafter {of!r}, which gives no probabilities; {WITH_LAW}"
        )
    return make


def read_row(
    row: Tensor, path: tuple[int, ...], context: Context, n: int
) -> tuple[Law | None, list[tuple[int, float]]]:
    """The law that a row is drawn from (None if tokens are chosen), and its n best tokens (none if the row is no law)."""
    sampling = context.sampling
    prefix = [*context.ids, *path] if sampling.uses_history else ()
    try:
        law, ranking = ranked(row, sampling, n, prefix, context.prompt_length, context.allowed(path))
    except InvalidLogits:
        return None, []
    return None if isinstance(law, PointMass) else law, ranking


class Branched(Drafter):
    """Another drafter, branched."""

    inner: Drafter
    forwards: list[int]

    def __init__(self, inner: Drafter) -> None:
        self.taps = inner.taps
        self.identity = inner.identity
        self.inner = inner
        self.forwards = []

    async def _begin(self, context: Context) -> Rows | None:
        self.forwards = []
        return self._counted(await self.inner.begin(context))

    async def _extend(self, tokens: Series[int], parents: Series[int]) -> Rows | None:
        return self._counted(await self.inner.extend(tokens, parents))

    def _counted(self, rows: Rows | None) -> Rows | None:
        if rows is not None:
            self.forwards.append(len(rows.logits))
        return rows

    def unread(self, ids: Series[int]) -> int:
        return self.inner.unread(ids)

    async def read(self, ids: Series[int], given: int) -> Rows:
        return await self.inner.read(ids, given)

    def learn(self, round: Round, rows: Tensor) -> None:
        self.inner.learn(round, rows)

    def close(self) -> None:
        self.inner.close()
