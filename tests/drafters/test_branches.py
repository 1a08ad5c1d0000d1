"""What trees and graphs ask of the drafter that they branch."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import torch

from forerun import load
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.forward import Rows
from forerun.core.values import Context, Step
from forerun.drafters.branches import Branched
from forerun.testing import tiny_model

from .branched import IDS


class Inner(Drafter):
    """Notes what it is asked, and gives rows of zeros, three times."""

    taps = frozenset({2})
    identity = "inner"

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        for step in ():
            yield step

    async def begin(self, context: Context) -> Rows | None:
        self.asked.append("begin")
        return self._rows(1)

    async def extend(self, tokens: Any, parents: Any) -> Rows | None:
        self.asked.append((list(tokens), list(parents)))
        return None if len(self.asked) > 3 else self._rows(len(tokens))

    async def read(self, ids: Any, given: int) -> Rows:
        self.asked.append(("read", list(ids), given))
        return self._rows(len(ids) - given + 1)

    def close(self) -> None:
        self.asked.append("close")

    def _rows(self, count: int) -> Rows:
        return Rows(torch.zeros(count, 4), torch.zeros(count, 2))


class Twice(Branched):
    """Asks for a level of two rows and one of three."""

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        await self._begin(context)
        yield Step((1, 2), (-1, -1), (None, None))
        await self._extend([1, 2], [-1, -1])
        yield Step((3, 4, 5), (0, 0, 1), (None,) * 3)
        await self._extend([3, 4, 5], [0, 0, 1])
        await self._extend([6], [4])  # for which there is no room


@pytest.fixture
def pair() -> tuple[Twice, Inner]:
    inner = Inner()
    return Twice(inner), inner


def counts(drafter: Twice) -> list[list[int]]:
    """The rows of its forwards, looked at after every step and at the end."""

    async def steps() -> AsyncGenerator[list[int]]:
        async for _ in drafter.draft(Context(list(IDS), Seeded(0))):
            yield list(drafter.forwards)
        yield list(drafter.forwards)

    return list(drive(steps()))


def test_forwards_are_noted_with_their_rows_those_that_come_to_nothing_too(pair: tuple[Twice, Inner]) -> None:
    assert counts(pair[0]) == [[1], [1, 2], [1, 2, 3]]


def test_a_new_draft_begins_a_new_count(pair: tuple[Twice, Inner]) -> None:
    counts(pair[0])
    pair[1].asked.clear()

    assert counts(pair[0])[0] == [1]


def test_the_rest_is_the_inner_drafters(pair: tuple[Twice, Inner]) -> None:
    drafter, inner = pair
    list(drive(one_reading(drafter)))
    drafter.close()

    assert inner.asked == [("read", [5, 6, 7, 8], 3), "close"]
    assert (drafter.taps, drafter.identity, drafter.branches) == (inner.taps, inner.identity, False)


async def one_reading(drafter: Drafter) -> AsyncGenerator[int]:
    yield len((await drafter.read([5, 6, 7, 8], 3)).logits)


@pytest.mark.parametrize("name", ["tree", "graph"])
def test_what_a_registered_one_notes_fits_its_steps(name: str) -> None:
    options = {"of": "self", "exit_layer": 3, "n": 2, "min_confidence": 0.0, "budget": 14}
    options |= {"sibling": 0.0, "leaf": 0.0} if name == "graph" else {}
    engine = load(tiny_model("llama"), drafter=name, drafter_options=options)
    with engine.borrow(IDS) as (sequence, drafter):
        assert isinstance(drafter, Branched)

        async def levels() -> AsyncGenerator[tuple[int, int, int]]:
            await sequence.sync(IDS[:-1])
            async for step in drafter.draft(Context(list(IDS), Seeded(0))):
                yield len(step.tokens), sum(drafter.forwards), len(drafter.forwards)

        found = list(drive(levels()))
    nodes = 0
    for number, (width, rows, forwards) in enumerate(found):
        assert forwards <= number + 1
        assert rows <= 1 + nodes, "no node has more than one row"
        nodes += width
    assert len(found) > 1
