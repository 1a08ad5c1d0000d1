from __future__ import annotations

import logging
from random import Random
from typing import Any

import numpy as np
import pytest

from forerun.engines.vllm import Proposer
from forerun.engines.vllm.matching import PATIENCE
from forerun.engines.vllm.request import Request
from forerun.errors import UnsupportedOption

from .fake import EOS, Asked, FakeVllm, alone, config, repeating

METHODS: list[Any] = [
    None,
    {"drafter": {"name": "lookup"}, "policy": {"name": "fixed"}},
    {"drafter": {"name": "suffix"}, "policy": {"name": "cost"}},
    {"drafter": {"name": "cascade", "of": "suffix,lookup"}, "policy": {"name": "bounded", "inner": "fixed", "k": 5}},
    {"drafter": {"name": "lookup"}, "policy": {"name": "governor", "inner": "fixed", "k": 3}},
]


@pytest.mark.parametrize("forerun", METHODS, ids=str)
def test_200_requests_with_aborts_and_preemption_are_answered_as_plain_decoding_answers(forerun: Any) -> None:
    random = Random(5)
    proposer = Proposer(config(forerun=forerun))
    vllm = FakeVllm(proposer, repeating)
    asked: list[tuple[Asked, list[int]]] = []
    aborted: list[Asked] = []
    most = 0
    while len(asked) < 200 or vllm.busy:
        if len(asked) < 200 and random.random() < 0.4:
            ids = [random.randrange(3, 32) for _ in range(random.choice([3, 20, 70, 150]))]
            new = random.choice([1, 5, 30, 60])
            asked.append((vllm.ask(ids, new), ids))
        if not vllm.busy:
            continue
        vllm.step(asks=random.random() > 0.05, cut=random.choice([None, None, None, 2]))
        if vllm.batch and random.random() < 0.1:
            vllm.preempt(random.choice(vllm.batch))
        if vllm.batch and random.random() < 0.05:
            aborted.append(random.choice(vllm.batch))
            vllm.abort(aborted[-1])
        most = max(most, proposer.in_flight)

    for one, ids in asked:
        plain = alone(repeating, ids, one.new)
        assert one.answer == plain if one not in aborted else one.answer == plain[: len(one.answer)]
    assert len(vllm.finished) + len(aborted) == 200
    assert len(aborted) > 5
    assert sum(drafted for _, drafted in vllm.took) > 200
    assert most <= 16 * (PATIENCE + 1)
    assert proposer.in_flight <= 16
    drain(vllm)
    assert proposer.in_flight == 0


def test_an_error_is_logged_and_vllm_goes_on_without_drafts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vllm = FakeVllm(Proposer(config(forerun=METHODS[1])), repeating)
    one = vllm.ask([3, 40, 5], 40)
    for _ in range(5):
        vllm.step()

    def fails(self: Request, *args: Any) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(Request, "draft", fails)
    with caplog.at_level(logging.ERROR):
        while vllm.busy:
            vllm.step()
    assert one.answer == alone(repeating, [3, 40, 5], 40)
    assert [record.message for record in caplog.records] == [
        "forerun failed and drafts no more until vLLM is started again"
    ]
    assert "a mistake" in caplog.text


def test_vllm_is_told_what_drafts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vllm.forerun"):
        Proposer(config(longest=5)).load_model(object(), anything=1)
    assert caplog.messages == ["forerun drafts by suffix under governor, up to 5 tokens"]


def test_what_can_not_run_is_refused_when_vllm_starts() -> None:
    with pytest.raises(UnsupportedOption, match="drafter 'recycle' can't run inside vLLM"):
        Proposer(config(forerun={"drafter": {"name": "recycle"}}))


def test_sampled_tokens_may_come_as_arrays() -> None:
    proposer = Proposer(config(forerun=METHODS[1]))
    text = np.array([[5, 6, 7, 5, 6, 7, 5, 0]], dtype=np.int32)

    assert proposer.propose([np.array([5], dtype=np.int32)], np.array([7]), text) == [[6, 7, 5]]


def test_earlier_answers_are_drafted_from() -> None:
    """The second request has no text of its own to copy from."""
    proposer = Proposer(config(forerun={"drafter": {"name": "suffix"}, "policy": {"name": "fixed"}}))
    vllm = FakeVllm(proposer, lambda ids: 3 + len(ids) if len(ids) < 60 else EOS)
    steps = []
    for _ in range(2):
        vllm.ask([1, 2, 3], 80)
        before = len(vllm.took)
        while vllm.busy:
            vllm.step()
        steps.append(len(vllm.took) - before)

    assert steps[0] >= 57
    assert steps[1] < steps[0] / 3


def drain(vllm: FakeVllm) -> None:
    """Calls for other requests, after which those that are gone are known to be."""
    for _ in range(PATIENCE + 1):
        vllm.proposer.propose([], [], None)
