"""The wall clock itself: counts are checked, and that times are times; never how long anything took."""

from __future__ import annotations

import pytest

import forerun
from forerun.models.packed.plan import LayerPlan
from forerun.testing import tiny_model
from forerun.tune.machine import PROBED_LENGTH, ROWS, ThisMachine

IDS = (5, 6, 7, 5, 6, 7, 5, 6)


@pytest.fixture(scope="module")
def plain() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


def test_forwards_are_timed_by_rows_after_a_prompt(plain: forerun.Engine) -> None:
    cost = ThisMachine().verify_cost(plain, 20)

    assert (cost.rows, cost.prefixes, cost.plan) == (ROWS, (20,), "full")


def test_sublayers_are_shares_of_a_forward(plain: forerun.Engine) -> None:
    cost = ThisMachine().plan_cost(plain, IDS)

    assert 0 <= cost.attention < 1
    assert 0 <= cost.mlp < 1


def test_a_drafted_token_takes_time_and_a_token_that_is_not_drafted_none(plain: forerun.Engine) -> None:
    machine = ThisMachine()

    assert machine.step_ms(plain.using("self", drafter_options={"exit_layer": 2}), "exit 2", IDS) > 0
    assert machine.step_ms(plain, "off", IDS) == 0


def test_a_probe_drafts_a_few_tokens_a_round(plain: forerun.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    drafting = plain.using("self", drafter_options={"exit_layer": 2})
    used: list[object] = []
    real = forerun.Engine.using
    monkeypatch.setattr(forerun.Engine, "using", lambda own, *a, **kw: (used.append(kw), real(own, *a, **kw))[1])

    ThisMachine().step_ms(drafting, "exit 2", IDS)

    assert used == [{"policy_options": {"k": PROBED_LENGTH}}]


def test_an_answer_is_timed_after_its_first_token(plain: forerun.Engine) -> None:
    sample = ThisMachine().answer(plain.using("self", drafter_options={"exit_layer": 3}), "exit 3", IDS, 9)

    assert sample.decoded == 8
    assert sample.seconds > 0
    assert sample.drafted >= sample.accepted
    assert sample.as_dict()["decoded"] == 8


def test_a_skip_set_has_a_price(plain: forerun.Engine) -> None:
    assert ThisMachine().skip_price(plain, [IDS])(LayerPlan.skip(4, (1,))) > 0
