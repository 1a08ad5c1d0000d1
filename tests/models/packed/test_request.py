"""What a sequence asks for, and which requests can share a forward."""

from __future__ import annotations

import pytest
import torch

from forerun.core.forward import Rows, submit
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.request import Request
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model


@pytest.fixture(scope="module")
def runner() -> HFRunner:
    return HFRunner(tiny_model("llama"))


def asked(
    runner: HFRunner, plan: LayerPlan = FULL, taps: frozenset[int] = frozenset(), drafting: bool = True
) -> Request:
    sequence = Sequence(runner)
    waiting = sequence.forward([1, 2], plan=plan, taps=taps) if drafting else sequence.sync([1, 2])
    request: Request = waiting.send(None)
    waiting.close()
    return request


def test_requests_of_one_runner_and_plan_share_a_forward(runner: HFRunner) -> None:
    assert asked(runner).packs_with == asked(runner).packs_with
    plan = LayerPlan.skip(4, [1])
    assert asked(runner, plan).packs_with == asked(runner, LayerPlan.skip(4, (1,))).packs_with


def test_another_runner_plan_or_set_of_taps_needs_a_forward_of_its_own(runner: HFRunner) -> None:
    different = [
        asked(runner),
        asked(HFRunner(tiny_model("llama"))),
        asked(runner, LayerPlan.skip(4, [1])),
        asked(runner, LayerPlan.early_exit(2, 4)),
        asked(runner, taps=frozenset({1})),
    ]
    assert len({request.packs_with for request in different}) == len(different)


def test_drafting_and_syncing_are_told_apart(runner: HFRunner) -> None:
    assert asked(runner).drafting
    assert not asked(runner, drafting=False).drafting


def test_submitting_suspends_with_the_request_and_resumes_with_its_rows(runner: HFRunner) -> None:
    request = asked(runner)
    rows = Rows(torch.zeros(2, 3), torch.zeros(2, 4))

    async def ask() -> Rows:
        return await submit(request)

    waiting = ask()
    assert waiting.send(None) is request
    with pytest.raises(StopIteration) as done:
        waiting.send(rows)
    assert done.value.value is rows
