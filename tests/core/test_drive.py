"""The driver: packing, priority, cancelling, failing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

import pytest
from torch import Tensor

from forerun.core.drive import Batch, drive
from forerun.core.values import ROOT
from forerun.models.packed.request import Request
from forerun.models.packed.runner import HFRunner, Runner
from forerun.models.packed.sequence import Sequence
from forerun.testing import VOCABULARY, tiny_model


class Spy(Runner):
    """Passes requests on and notes which shared a forward."""

    def __init__(self, inner: Runner) -> None:
        self.inner = inner
        self.calls: list[list[Request]] = []
        self.num_layers = inner.num_layers
        self.vocab_size = inner.vocab_size
        self.max_length = inner.max_length
        self.poison: int | None = None

    def execute(self, requests):
        self.calls.append(list(requests))
        if any(self.poison in request.tokens for request in requests):
            raise RuntimeError("poisoned forward")
        return self.inner.execute(requests)

    def check_plan(self, plan) -> None:
        self.inner.check_plan(plan)

    def add_weights(self, name) -> None:
        self.inner.add_weights(name)

    def add_head(self, tokens) -> str:
        return self.inner.add_head(tokens)

    def embed(self, ids) -> Tensor:
        return self.inner.embed(ids)

    def head(self, hidden, name="") -> Tensor:
        return self.inner.head(hidden, name)


@pytest.fixture(scope="module")
def inner() -> HFRunner:
    return HFRunner(tiny_model("llama"))


@pytest.fixture
def spy(inner: HFRunner) -> Spy:
    return Spy(inner)


async def greedy(runner: Runner, ids: list[int], count: int) -> AsyncGenerator[int]:
    sequence = Sequence(runner)
    rows = await sequence.sync(ids)
    for _ in range(count):
        token = int(rows.logits[-1].argmax())
        yield token
        rows = await sequence.complete([token], [ROOT])
        sequence.keep([0])


async def drafting(runner: Runner, ids: list[int], depth: int) -> AsyncGenerator[str]:
    sequence = Sequence(runner)
    await sequence.sync(ids)
    yield "synced"
    for _ in range(depth):
        await sequence.forward([ids[-1]])
    yield "drafted"
    await sequence.complete([ids[-1]], [ROOT])
    yield "verified"


@dataclass
class Log:
    closed: list[str] = field(default_factory=list)


def test_one_source_gives_what_the_model_alone_gives(inner: HFRunner) -> None:
    tokens = list(drive(greedy(inner, [1, 2, 3], 5)))
    assert len(tokens) == 5
    assert tokens == list(drive(greedy(inner, [1, 2, 3], 5)))


def test_sources_of_a_batch_share_each_forward(spy: Spy) -> None:
    batch: Batch[int, int] = Batch()
    for key in range(3):
        batch.add(key, greedy(spy, list(range(1, 3 + key)), 4))
    events = list(batch.run())
    assert [len(call) for call in spy.calls] == [3] * 5
    assert sum(not event.ended for event in events) == 12


def test_a_batch_gives_each_source_what_it_gives_alone(inner: HFRunner) -> None:
    prompts = [[3, 5], [7, 11, 13, 17], list(range(20, 40))]
    alone = [list(drive(greedy(inner, prompt, 6))) for prompt in prompts]
    batch: Batch[int, int] = Batch()
    for key, prompt in enumerate(prompts):
        batch.add(key, greedy(inner, prompt, 6))
    together: list[list[int]] = [[] for _ in prompts]
    for event in batch.run():
        if event.value is not None:
            together[event.key].append(event.value)
    assert together == alone


def test_verifications_wait_while_a_draft_is_pending(spy: Spy) -> None:
    batch: Batch[int, str] = Batch()
    batch.add(0, drafting(spy, [1, 2], depth=1))
    batch.add(1, drafting(spy, [3, 4], depth=4))
    list(batch.run())
    verifications = [call for call in spy.calls[1:] if not call[0].drafting]
    assert [len(call) for call in verifications] == [2]


def test_requests_of_different_models_do_not_share_a_forward(spy: Spy) -> None:
    other = Spy(HFRunner(tiny_model("llama", seed=1)))
    batch: Batch[int, int] = Batch()
    batch.add(0, greedy(spy, [1], 2))
    batch.add(1, greedy(other, [1], 2))
    list(batch.run())
    assert [len(call) for call in spy.calls + other.calls] == [1] * 6


def test_a_failing_forward_reaches_only_the_request_that_caused_it(spy: Spy) -> None:
    spy.poison = 50
    batch: Batch[str, int] = Batch()
    batch.add("good", greedy(spy, [1, 2], 3))
    batch.add("bad", greedy(spy, [50, 2], 3))
    events = list(batch.run())
    errors = [event for event in events if event.error is not None]
    assert [event.key for event in errors] == ["bad"]
    assert str(errors[0].error) == "poisoned forward"
    assert sum(event.key == "good" and not event.ended for event in events) == 3


def test_the_values_of_a_batch_come_without_its_ends(inner: HFRunner) -> None:
    alone = list(drive(greedy(inner, [3, 5], 4)))
    batch: Batch[int, int] = Batch()
    for key in range(2):
        batch.add(key, greedy(inner, [3, 5], 4))
    assert sorted(batch.values()) == sorted((key, token) for key in range(2) for token in alone)


def test_the_values_of_a_batch_end_with_the_first_error(spy: Spy) -> None:
    spy.poison = 50
    batch: Batch[str, int] = Batch()
    batch.add("bad", greedy(spy, [50, 2], 3))
    with pytest.raises(RuntimeError, match="poisoned forward"):
        list(batch.values())


def test_a_request_that_is_wrong_fails_before_it_reaches_the_batch(spy: Spy) -> None:
    batch: Batch[str, int] = Batch()
    batch.add("bad", greedy(spy, [VOCABULARY], 1))
    (event,) = batch.run()
    assert isinstance(event.error, ValueError)
    assert spy.calls == []


def test_cancelling_in_the_middle_of_a_draft_leaves_the_others_untouched(spy: Spy, inner: HFRunner) -> None:
    log = Log()

    async def guarded() -> AsyncGenerator[str]:
        try:
            async for value in drafting(spy, [1, 2], depth=9):
                yield value
        finally:
            log.closed.append("guarded")

    alone = list(drive(greedy(inner, [9, 8, 7], 4)))
    batch: Batch[str, object] = Batch()
    batch.add("cancelled", guarded())
    batch.add("other", greedy(spy, [9, 8, 7], 4))
    values: list[object] = []
    for event in batch.run():
        if event.key == "other" and event.value is not None:
            values.append(event.value)
        if event.key == "cancelled" and event.value == "synced":
            batch.step()
            batch.cancel("cancelled")
        assert event.value != "drafted"
    assert values[-3:] == alone[-3:]
    assert log.closed == ["guarded"]


def test_closing_a_driven_source_runs_its_finally_blocks(inner: HFRunner) -> None:
    log = Log()

    async def guarded() -> AsyncGenerator[int]:
        try:
            async for token in greedy(inner, [1], 5):
                yield token
        finally:
            log.closed.append("guarded")

    source = drive(guarded())
    next(source)
    source.close()
    assert log.closed == ["guarded"]


def test_a_source_may_end_without_a_forward() -> None:
    async def nothing() -> AsyncGenerator[int]:
        return
        yield

    assert list(drive(nothing())) == []


def test_a_key_in_flight_is_refused(inner: HFRunner) -> None:
    batch: Batch[str, int] = Batch()
    batch.add("a", greedy(inner, [1], 1))
    second = greedy(inner, [1], 1)
    with pytest.raises(ValueError, match="'a' is in flight"):
        batch.add("a", second)
    batch.close()
    assert len(batch) == 0


def test_an_error_of_the_source_itself_is_raised_by_drive() -> None:
    async def broken() -> AsyncGenerator[int]:
        yield 1
        raise KeyError("lost")

    source = drive(broken())
    assert next(source) == 1
    with pytest.raises(KeyError, match="lost"):
        next(source)


class Timed(Spy):
    """Says that each forward took a second inside native code."""

    def execute(self, requests):
        return [replace(rows, native=1.0) for rows in super().execute(requests)]


def test_a_value_tells_the_native_time_of_its_forwards(inner: HFRunner) -> None:
    batch: Batch[str, str] = Batch()
    batch.add("one", drafting(Timed(inner), [1, 2, 3], depth=2))
    assert [(event.value, event.native) for event in batch.run() if event.value] == [
        *(("synced", 1.0), ("drafted", 2.0), ("verified", 1.0)),
    ]


LONG = [3 + n % 90 for n in range(60)]


def read_rows(call: list[Request]) -> list[int]:
    return [request.reads for request in call]


@pytest.fixture
def small_chunks(spy: Spy) -> Spy:
    spy.chunk = 10
    return spy


def test_long_texts_are_read_a_few_rows_at_a_time_beside_others(small_chunks: Spy) -> None:
    batch: Batch[str, int] = Batch(most_read=12)
    batch.add("running", greedy(small_chunks, [5, 6], 20))
    for _ in range(3):
        batch.step()
    for name in ("one", "other"):
        batch.add(name, greedy(small_chunks, LONG, 2))
    before = len(small_chunks.calls)
    values = list(batch.values())
    calls = small_chunks.calls[before:]

    assert all(sum(read_rows(call)) <= 12 for call in calls)
    assert [read_rows(call) for call in calls[1:7]] == [[0, 10]] * 6  # the first text is read to its end
    assert sum(sum(read_rows(call)) for call in calls) == 2 * len(LONG)
    assert {key for key, _ in values} == {"running", "one", "other"}


def test_without_a_limit_texts_are_read_together(small_chunks: Spy) -> None:
    batch: Batch[str, int] = Batch()
    for name in ("one", "other"):
        batch.add(name, greedy(small_chunks, LONG, 1))
    batch.step()
    batch.step()

    assert read_rows(small_chunks.calls[-1]) == [10, 10]


async def draft_reading(target: Runner, draft: Runner) -> AsyncGenerator[int]:
    """A request whose draft model reads a long text before it verifies."""
    yield 1
    await Sequence(draft, drafting=True).sync(LONG)
    async for token in greedy(target, [7, 8], 2):
        yield token


def test_nobody_waits_while_another_model_reads(small_chunks: Spy, inner: HFRunner) -> None:
    other = Spy(inner)
    other.chunk = 10
    batch: Batch[str, int] = Batch(most_read=12)
    batch.add("running", greedy(small_chunks, [5, 6], 12))
    batch.step()
    batch.add("reading", draft_reading(small_chunks, other))
    order: list[str] = []
    for event in batch.run():
        if event.value is not None:
            order.append(event.key)

    assert [read_rows(call) for call in other.calls] == [[10]] * 6
    last_draft = order.index("reading", order.index("reading") + 1)
    assert order[:last_draft].count("running") >= 6  # a token after each chunk


def test_a_limit_changes_no_text(small_chunks: Spy) -> None:
    def texts(most_read: int | None) -> dict[str, list[int]]:
        batch: Batch[str, int] = Batch(most_read)
        for number in range(3):
            batch.add(str(number), greedy(small_chunks, [number + 1, *LONG], 5))
        found: dict[str, list[int]] = {}
        for key, token in batch.values():
            found.setdefault(key, []).append(token)
        return found

    assert texts(12) == texts(None)
