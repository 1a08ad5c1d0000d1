"""Forwards as they follow each other in rounds: what runs, in which order, and what is kept of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
import torch

from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.values import Context, Step
from forerun.design import round_timing as bursts
from forerun.design.round_timing import READ, READINGS, ROOM, VERIFIED, measure, room_for
from forerun.drafters.chain import chained
from forerun.engine.engine import Engine
from forerun.errors import UnsupportedOption

ABOUT = ("tiny", "float32")


class Free(Drafter):
    """Notes what it is asked, and takes no time."""

    def __init__(self, noted: list[tuple[str, int]], limit: int | None = None) -> None:
        self._noted, self._limit = noted, limit
        self.texts: list[tuple[int, ...]] = []
        self.read_texts: list[tuple[int, ...]] = []

    def draft(self, context: Context) -> AsyncGenerator[Step]:
        return chained(self, context)

    async def begin(self, context: Context) -> Rows | None:
        self.texts.append(tuple(context.ids))
        self._noted.append(("begin", len(context.ids)))
        if self._limit is not None and len(context.ids) > self._limit:
            return None
        return Rows(torch.zeros(1, 5), torch.zeros(1, 5))

    async def read(self, ids: Sequence[int], given: int) -> Rows:
        self._noted.append(("read", given))
        self.read_texts.append(tuple(ids))
        return Rows(torch.zeros(1, 5), torch.zeros(1, 5))

    async def extend(self, tokens: Sequence[int], parents: Sequence[int]) -> Rows | None:
        self._noted.append(("extend", parents[0]))
        return Rows(torch.zeros(1, 5), torch.zeros(1, 5))


def watched(engine: Engine, monkeypatch: pytest.MonkeyPatch, noted: list[tuple[str, int]]) -> None:
    execute = engine.runner.execute

    def watching(requests: Any) -> Any:
        noted.append(("target", len(requests[0].tokens)))
        return execute(requests)

    monkeypatch.setattr(engine.runner, "execute", watching)


@pytest.fixture
def ran(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    noted: list[tuple[str, int]] = []
    watched(engine, monkeypatch, noted)
    return noted


def test_a_round_is_a_draft_and_then_the_target(engine: Engine, ran: list[tuple[str, int]]) -> None:
    measure(engine.runner, [("free", Free(ran))], ABOUT, prefix=20, repeats=1)
    assert ran[0] == ("target", 20)
    rest = ran[1:]
    starts = [i for i, (kind, _) in enumerate(rest) if kind == "begin"]
    for start in starts:
        round_ = rest[start : start + 5]
        assert [kind for kind, _ in round_] == ["begin", "extend", "extend", "extend", "target"]
        assert round_[0][1] - 20 in READ
        assert [parent for _, parent in round_[1:4]] == [-1, 0, 1]


def test_every_number_of_rows_is_verified(engine: Engine, ran: list[tuple[str, int]]) -> None:
    found = measure(engine.runner, [("free", Free(ran))], ABOUT, prefix=20, repeats=2)
    assert found.verify.rows == VERIFIED
    assert set(found.drafts) == {"free"}
    assert found.drafts["free"].first.rows == READ
    assert found.verify.key == ("tiny", "float32", "full")
    assert found.plain > 0


def test_a_draft_finds_no_text_that_it_has_read_before(engine: Engine) -> None:
    draft = Free([])
    measure(engine.runner, [("free", draft)], ABOUT, prefix=20, repeats=1)
    assert {text[:20] for text in draft.texts} == {draft.texts[0][:20]}
    assert all(one[20] != other[20] for one, other in zip(draft.texts, draft.texts[1:], strict=False))


def test_reading_the_prompt_is_timed_on_texts_that_begin_differently(engine: Engine) -> None:
    draft = Free([])
    found = measure(engine.runner, [("free", draft)], ABOUT, prefix=20, repeats=1)
    assert found.reading["free"] > 0
    assert {len(text) for text in draft.read_texts} == {20}
    starts = [text[0] for text in (*draft.read_texts, draft.texts[0])]
    assert len(set(starts)) == len(starts) == READINGS + 1


def test_all_drafts_get_as_many_bursts_in_a_changing_order(engine: Engine) -> None:
    order: list[tuple[str, int]] = []

    class Named(Free):
        async def begin(self, context: Context) -> Rows | None:
            order.append((str(self._limit), len(context.ids)))
            return Rows(torch.zeros(1, 5), torch.zeros(1, 5))

    drafts = [(name, Named([], number)) for number, name in enumerate(("a", "b", "c"))]
    ticks: list[None] = []
    measure(engine.runner, drafts, ABOUT, prefix=20, tick=lambda: ticks.append(None), repeats=2)
    assert len(ticks) == 3
    assert len(set(Counter(order).values())) == 1
    third = len(order) // 3
    assert order[:third] != order[third : 2 * third] != order[2 * third :]


def test_without_drafts_the_plain_step_alone_is_no_measurement_of_rounds(engine: Engine) -> None:
    with pytest.raises(ValueError, match="has no measured point"):
        measure(engine.runner, [], ABOUT, prefix=20, repeats=1)


def test_the_time_is_the_median_of_the_repeats(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(bursts, "perf_counter", lambda: next(ticks) * 0.001)
    found = measure(engine.runner, [("free", Free([]))], ABOUT, prefix=20, repeats=3)
    assert found.drafts["free"].later == pytest.approx(1.0)
    assert [point.ms for point in found.drafts["free"].first.points] == pytest.approx([1.0, 1.0])
    assert found.plain == pytest.approx(1.0)
    assert found.reading["free"] == pytest.approx(1.0)


def test_a_draft_with_a_shorter_context_is_refused(engine: Engine) -> None:
    with pytest.raises(UnsupportedOption, match="short holds a shorter text than the one that is measured"):
        measure(engine.runner, [("short", Free([], limit=10))], ABOUT, prefix=20)


@pytest.mark.parametrize(("limit", "expected"), [(None, 192), (4096, 192), (100, 100 - ROOM)])
def test_the_prefix_leaves_room_for_the_rounds(limit: int | None, expected: int) -> None:
    assert room_for(192, limit) == expected


def test_a_context_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match=f"a context of {ROOM} tokens is too short to measure rounds in"):
        room_for(192, ROOM)
