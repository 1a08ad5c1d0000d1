from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.engine.system.value import System
from forerun.engines.vllm.governing import LoadGovernor
from forerun.engines.vllm.method import method_of
from forerun.engines.vllm.rounds import Rounds
from forerun.engines.vllm.settings import Settings
from forerun.policies.governor import MEASURED_FIRST

from .fake import FakeVllm, alone, repeating, unforeseeable
from .recording import Recorded

SETTINGS = Settings(System("x", "lookup"), longest=4, max_length=60, requests=16)


class Clock:
    """Seconds that pass only where somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("forerun.engines.vllm.rounds.perf_counter", made)
    return made


def call(rounds: Rounds, *rows: tuple[list[int], int]) -> list[list[int]]:
    texts = np.zeros((16, 60), dtype=np.int32)
    for row, (text, _) in enumerate(rows):
        texts[row, : len(text)] = text
    lengths = np.array([len(text) for text, _ in rows] + [0] * (16 - len(rows)), dtype=np.int32)
    return rounds.next([text[len(text) - new :] for text, new in rows], lengths, texts)


def test_a_draft_for_each_row_and_none_while_a_prompt_is_read() -> None:
    rounds = Rounds(Recorded(most=9).method, SETTINGS)

    assert call(rounds, ([10, 11], 1), ([20, 21], 0), ([30, 31], 1)) == [[12, 13, 14, 15], [], [32, 33, 34, 35]]


@pytest.mark.parametrize(("length", "drafted"), [(55, 4), (56, 3), (58, 1), (59, 0), (60, 0)])
def test_no_draft_goes_beyond_the_longest_text(length: int, drafted: int) -> None:
    rounds = Rounds(Recorded(most=9).method, SETTINGS)

    assert len(call(rounds, ([10] * length, 1))[0]) == drafted


def test_a_round_takes_the_time_between_two_calls(clock: Clock) -> None:
    recorded = Recorded()
    rounds = Rounds(recorded.method, SETTINGS)
    call(rounds, ([10, 11], 1), ([20, 21], 1))
    clock.now += 0.5
    call(rounds, ([10, 11, 12, 13, 50], 3), ([20, 21, 50], 1))
    timings = [policy.seen[0].timing for policy in recorded.policies]

    assert [(timing.draft, timing.forward) for timing in timings] == [(0.0, 0.5)] * 2
    assert [len(policy.seen[0].verdict.path) for policy in recorded.policies] == [2, 0]


@pytest.mark.parametrize(
    "second",
    [
        [([10, 11, 12], 1), ([20, 21], 1)],  # a prompt was read
        [([10, 11, 12], 1), ([20, 21], 0)],  # a part of one
        [([10, 11, 12, 13], 1)],  # a call was missed
        [([20, 21], 1)],  # nobody went on: vLLM may have waited for requests
    ],
)
def test_rounds_of_another_kind_are_not_timed(clock: Clock, second: list[tuple[list[int], int]]) -> None:
    recorded = Recorded()
    rounds = Rounds(recorded.method, SETTINGS)
    call(rounds, ([10, 11], 1))
    clock.now += 0.5
    call(rounds, *second)

    assert [round.timing.verify for policy in recorded.policies for round in policy.seen if round.timing.verify] == []
    assert recorded.method.costs.plain_seconds(1) == 1.0


def test_a_request_that_left_leaves_the_round_to_the_others(clock: Clock) -> None:
    recorded = Recorded(most=0)
    rounds = Rounds(recorded.method, SETTINGS)
    call(rounds, ([10, 11], 1), ([20, 21], 1))
    clock.now += 0.25
    call(rounds, ([20, 21, 22], 1))

    assert recorded.method.costs.plain_seconds(1) == pytest.approx(0.25)


def test_the_governor_asks_for_plain_rounds_of_all_requests_first(clock: Clock) -> None:
    recorded = Recorded(governor=LoadGovernor(4.0, 0.01))
    rounds = Rounds(recorded.method, SETTINGS)
    texts = [[10, 11], [20, 21]]
    drafted = []
    for _ in range(MEASURED_FIRST + 2):
        drafted.append([len(draft) for draft in call(rounds, *((text, 1) for text in texts))])
        texts = [[*text, 50] for text in texts]
        clock.now += 0.1

    assert drafted == [[0, 0]] * MEASURED_FIRST + [[3, 3]] * 2
    assert [len(policy.seen) for policy in recorded.policies] == [1, 1]


def paced(clock: Clock, policy: str, target: Any, requests: int, row_cost: float, new: int = 150) -> FakeVllm:
    """Requests that are decoded to their ends; a forward takes 1 s, and row_cost more for each of its rows."""
    system = System("x", "lookup", {}, policy)
    settings = Settings(system, 8, 2000, 16)
    rounds = Rounds(method_of(system, 8), settings)

    class Proposing:
        def propose(self, sampled: Any, lengths: Any, texts: Any, slot_mappings: Any = None) -> list[list[int]]:
            return rounds.next(sampled, lengths, texts)

    def forward(rows: int) -> None:
        clock.now += 1 + row_cost * rows

    vllm = FakeVllm(Proposing(), target, rows=16, max_length=2000, forward=forward)
    asked = [vllm.ask([3 + number, 40, 5], new) for number in range(requests)]
    while vllm.busy:
        vllm.step()
    for number, one in enumerate(asked):
        assert one.answer == alone(target, [3 + number, 40, 5], new)
    return vllm


def drafted_share(vllm: FakeVllm) -> float:
    """Of the last half of the rounds, the tokens drafted a request."""
    late = vllm.took[len(vllm.took) // 2 :]
    return sum(drafted for _, drafted in late) / sum(requests for requests, _ in late)


def steady(ids: Any) -> int:
    """A text that goes round, so that every draft is right."""
    return 3 + (len(ids) + ids[0]) % 11


@pytest.mark.parametrize("policy", ["cost", "governor"])
def test_drafts_that_pay_are_long_and_those_that_do_not_are_given_up(clock: Clock, policy: str) -> None:
    assert drafted_share(paced(clock, policy, steady, 1, 0.02)) > 5
    assert drafted_share(paced(clock, policy, unforeseeable, 1, 0.3)) < 0.3


def test_the_same_drafts_are_given_up_where_many_requests_make_rows_dear(clock: Clock) -> None:
    """A third of the drafts is right: that pays for one request, and loses where a row costs as much as it gives."""
    few, many = (paced(clock, "governor", repeating, requests, 0.2, 400) for requests in (1, 16))

    assert drafted_share(few) > 2 * drafted_share(many) > 0
    assert drafted_share(many) < 0.5


def test_cost_shortens_drafts_as_rows_get_dearer(clock: Clock) -> None:
    cheap, dear = (drafted_share(paced(clock, "cost", repeating, 8, cost)) for cost in (0.001, 0.2))

    assert dear < cheap / 2
