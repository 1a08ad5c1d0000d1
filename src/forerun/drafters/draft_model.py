"""A smaller model drafts: classic two-model speculation.

The draft's sequence follows the text by itself: each round it syncs to what was emitted, so rejected tokens need no call
back. Vocabularies are compared by token strings; sizes may differ by padding, and a token that the target doesn't have is
never drafted.

Sources: Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from dataclasses import replace
from typing import Any, final

from ..core import Context, Step
from ..errors import UnsupportedOption
from ..models.pool import Pool
from ..models.request import Rows
from ..models.sequence import Sequence
from .base import DRAFTERS, Drafter, DrafterFactory, Parts
from .chain import chained


@final
class ModelDraft(Drafter):
    branches = True

    def __init__(self, pool: Pool, shared: int) -> None:
        if pool.identity is not None:
            self.identity = f"draft_model of weights {pool.identity.weights}"
        self._pool = pool
        self._shared = shared
        self._sequence: Sequence | None = None
        self._ends: list[int] = []  # of the pending token and each drafted one: how long the text up to it is

    def draft(self, context: Context) -> AsyncGenerator[Step]:
        return chained(self, context)

    async def begin(self, context: Context) -> Rows | None:
        if self._sequence is None:
            self._sequence = self._pool.take(context.ids)
        self._ends = [len(context.ids)]
        return self._shown(await self._sequence.sync(context.ids)) if self._fits(self._ends) else None

    async def extend(self, tokens: Series[int], parents: Series[int]) -> Rows | None:
        assert self._sequence is not None
        ends = [self._ends[parent + 1] + 1 for parent in parents]
        if not self._fits(ends):
            return None
        self._ends += ends
        return self._shown(await self._sequence.forward(tokens, parents))

    def _fits(self, ends: Series[int]) -> bool:
        limit = self._pool.runner.max_length
        return limit is None or max(ends) <= limit

    def _shown(self, rows: Rows) -> Rows:
        """The rows without what only the draft model's vocabulary holds."""
        return replace(rows, logits=rows.logits[:, : self._shared])

    async def read(self, ids: Series[int], given: int) -> Rows:
        if self._sequence is None:
            self._sequence = self._pool.take(ids)
        await self._sequence.sync(ids[: given - 1])
        return self._shown(await self._sequence.forward(ids[given - 1 :]))

    def close(self) -> None:
        if self._sequence is not None:
            self._pool.give(self._sequence)


@DRAFTERS("draft_model", source="Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318")
def build(parts: Parts, *, model: Any) -> DrafterFactory:
    """A smaller model with the target's tokenizer: a name, a path or a loaded model."""
    pool, vocabulary = parts.load(model)
    shared = min(pool.runner.vocab_size, parts.target.runner.vocab_size)
    if vocabulary is not None and parts.vocabulary is not None:
        compare_vocabularies(parts.vocabulary, vocabulary, shared, pool.runner.name)
    return lambda target: ModelDraft(pool, shared)


def compare_vocabularies(target: dict[str, int], draft: dict[str, int], shared: int, name: str) -> None:
    """Raise UnsupportedOption if an id below `shared` stands for two different tokens."""
    by_id = {token_id: token for token, token_id in target.items() if token_id < shared}
    for token, token_id in draft.items():
        other = by_id.get(token_id, token)
        if token_id < shared and other != token:
            raise UnsupportedOption(
                f"draft model {name} has another tokenizer: id {token_id} is {token!r} there and {other!r} in the target; "
                "take a draft model of the target's family"
            )
