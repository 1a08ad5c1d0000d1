"""Drafters and policies that note what they are told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import final

from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.policy import LengthPolicy
from forerun.core.values import Context, Round, Step
from forerun.engines.vllm.costs import LoadCosts
from forerun.engines.vllm.governing import LoadGovernor
from forerun.engines.vllm.method import Method


@final
class Counting(Drafter):
    """Drafts the numbers after the last token."""

    def __init__(self) -> None:
        self.learnt: list[Round] = []
        self.closed = 0

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        node = -1
        while True:
            yield Step((context.ids[-1] + node + 2,), (node,), (None,))
            node += 1

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        self.learnt.append(round)

    def close(self) -> None:
        self.closed += 1


@final
class UpTo(LengthPolicy):
    """most: the longest draft; 0 asks for none."""

    def __init__(self, most: int = 3) -> None:
        self.most = most
        self.seen: list[Round] = []
        self.ended = 0

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) >= self.most

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        assert len(steps) == len(round.draft)
        self.seen.append(round)

    def end(self) -> None:
        self.ended += 1


@final
class Recorded:
    """A method whose drafters and policies are kept, one of each a request."""

    def __init__(self, most: int = 3, governor: LoadGovernor | None = None) -> None:
        self.drafters: list[Counting] = []
        self.policies: list[UpTo] = []
        self.most = most
        self.method = Method(self._drafter, self._policy, LoadCosts(), governor)

    def _drafter(self, target: object) -> Drafter:
        self.drafters.append(Counting())
        return self.drafters[-1]

    def _policy(self) -> LengthPolicy:
        self.policies.append(UpTo(self.most))
        return self.policies[-1]
