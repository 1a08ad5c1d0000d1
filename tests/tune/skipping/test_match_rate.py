"""Match rates against a slow reading, and what time they promise."""

from __future__ import annotations

import pytest
import torch

import forerun
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.testing import tiny_model
from forerun.tune.skipping.match_rate import (
    MatchRate,
    PlanCost,
    Proxy,
    Recorded,
    harms,
    measure_plan_cost,
    record,
    time_per_token,
)
from forerun.tune.skipping.space import SkipSpace

from ..redundant import TARGET

PROMPTS = [[5, 6, 7, 5, 6], [1, 2, 3]]
SPACE = SkipSpace(4)


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


@pytest.fixture(scope="module")
def answers(engine: forerun.Engine) -> list[Recorded]:
    return record(engine, PROMPTS, 8)


def test_recorded_answers_are_the_greedy_ones(engine: forerun.Engine, answers: list[Recorded]) -> None:
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.ids[: answer.start] == tuple(prompt)
        assert answer.ids[answer.start :] == engine.generate(prompt, max_new_tokens=8).ids


@pytest.mark.parametrize(
    ("prompts", "tokens"),
    [([], 8), (PROMPTS, 0)],
)
def test_no_answers_to_measure_by_are_refused(engine: forerun.Engine, prompts: list[list[int]], tokens: int) -> None:
    with pytest.raises(ValueError, match="no prompt has an answer"):
        record(engine, prompts, tokens)


def test_the_whole_model_matches_itself(engine: forerun.Engine, answers: list[Recorded]) -> None:
    assert MatchRate(engine.runner, answers)(FULL) == 1.0


@pytest.mark.parametrize(
    "plan", [LayerPlan.skip(4, (1,), (2, 3)), LayerPlan.skip(4, range(4)), LayerPlan.early_exit(2, 4)]
)
def test_a_match_rate_is_the_share_of_tokens_whose_first_draft_is_right(
    engine: forerun.Engine, answers: list[Recorded], plan: LayerPlan
) -> None:
    options = {"exit_layer": plan.exit_layer} if plan.exit_layer else {}
    skips = {} if options else {"skip_attention": tuple(plan.attention), "skip_mlp": tuple(plan.mlp)}
    drafting = engine.using("self", policy_options={"k": 1}, drafter_options=options or skips)
    right = total = 0
    for answer in answers:
        for place in range(answer.start, len(answer.ids)):
            # the prompt's last token is pending after a prefill, so the first new token is the target's own
            before = list(answer.ids[:place])
            drafted = _first_draft(drafting, before)
            right += drafted == answer.ids[place]
            total += 1
    assert MatchRate(engine.runner, answers)(plan) == right / total


def _first_draft(engine: forerun.Engine, ids: list[int]) -> int:
    from forerun.core.chance import Seeded
    from forerun.core.drive import drive
    from forerun.core.values import Context, Sampling

    with engine.borrow(ids) as (target, drafter):

        async def steps() -> object:
            await target.sync(ids[:-1])
            async for step in drafter.draft(Context(ids, Seeded(0), Sampling())):
                yield step.tokens[0]

        return next(drive(steps()))


def test_rates_do_not_depend_on_what_was_asked_before(engine: forerun.Engine, answers: list[Recorded]) -> None:
    plans = [SPACE.without([one]) for one in SPACE.sublayers]
    shared = MatchRate(engine.runner, answers)
    there = [shared(plan) for plan in plans]
    assert there == [MatchRate(engine.runner, answers)(plan) for plan in reversed(plans)][::-1]
    assert len(set(there)) > 1


def test_harms_are_what_single_sublayers_cost(engine: forerun.Engine, answers: list[Recorded]) -> None:
    rate = MatchRate(engine.runner, answers)
    table = harms(rate, SPACE)
    assert set(table) == set(SPACE.sublayers)
    assert table["mlp", 2] == 1 - rate(LayerPlan.skip(4, (), (2,)))


def test_a_plan_costs_what_its_sublayers_leave() -> None:
    cost = PlanCost(attention=0.1, mlp=0.05)
    assert cost(FULL) == 1
    assert cost(LayerPlan.skip(4, (0, 1), (3,))) == pytest.approx(0.75)
    assert cost(LayerPlan.skip(16, range(16))) == 0.01


def test_measured_shares_are_of_single_sublayers(engine: forerun.Engine) -> None:
    cost = measure_plan_cost(engine.runner, [5, 6, 7, 5], repeats=3)
    assert 0 <= cost.attention < 0.25
    assert 0 <= cost.mlp < 0.25


def test_time_per_token_is_the_best_draft_lengths() -> None:
    # one drafted token: 1 + rate tokens for a draft step and a verification of two rows, of 10.6 over 10.3 ms
    assert time_per_token(0.5, 0.4, TARGET, lengths=(1,)) == pytest.approx((0.4 + 10.6 / 10.3) / 1.5)
    every = [time_per_token(0.8, 0.3, TARGET, lengths=(k,)) for k in (1, 2, 3, 4, 8)]
    assert time_per_token(0.8, 0.3, TARGET, lengths=(1, 2, 3, 4, 8)) == min(every) < every[0]
    assert time_per_token(0.0, 0.5, TARGET) > 1
    with pytest.raises(ValueError, match=r"a match rate must be in \[0, 1\], got 1.5"):
        time_per_token(1.5, 0.5, TARGET)


def test_a_proxy_puts_rate_and_cost_together() -> None:
    proxy = Proxy(lambda plan: 0.5, PlanCost(0.1, 0.1), TARGET)
    plan = LayerPlan.skip(4, (1,), (2,))
    assert proxy(plan) == time_per_token(0.5, 0.8, TARGET)
    assert torch.isfinite(torch.tensor(proxy(FULL)))
