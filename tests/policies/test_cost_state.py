"""What the cost rule keeps for all requests, and from one start to the next."""

from __future__ import annotations

import json

import pytest

from forerun.core.values import Draft, Round, Step, Timing, Verdict
from forerun.policies.cost import CostAware
from forerun.policies.cost_state import Rate, SharedState
from forerun.policies.costs.step_costs import MeasuredStepCosts


def test_rounds_without_a_draft_count_together_as_one_by_one() -> None:
    together, apart = Rate(0.9), Rate(0.9)
    for rate in (together, apart):
        rate.add(3.0, 1.5)
    for _ in range(7):
        apart.add(1.0, 1.0)
    together.rest(7)
    assert together.tokens == pytest.approx(apart.tokens)
    assert together.time == pytest.approx(apart.time)


def test_what_a_rule_learnt_goes_on_in_another_one() -> None:
    shared, kept = SharedState(MeasuredStepCosts()), SharedState(MeasuredStepCosts())
    policy = CostAware(shared, 1.0, 20, 8)
    policy.begin(0, 200)
    for number in range(60):
        steps = [] if policy.should_stop([]) else [Step((7,), (-1,), (None,), confidence=0.9)]
        path = (0,) if steps and number % 3 else ()
        tokens = (7,) * (len(path) + 1)
        timing = Timing(draft=1e-5, forward=1e-3 * (1 + 0.1 * len(steps)))
        policy.observe(steps, Round(tokens, Draft.of(steps), Verdict(path, tokens), 3, timing=timing))
    policy.end()
    data = json.loads(json.dumps(shared.as_data()))
    kept.recall(data)
    again = kept.as_data()
    assert {name: again[name] for name in again if name != "costs"} == {
        name: data[name] for name in data if name != "costs"
    }
    assert kept.costs.verify(2) == pytest.approx(shared.costs.verify(2) / shared.costs.verify(1))
    assert CostAware(kept, 1.0, 20, 8).should_stop([]) == CostAware(shared, 1.0, 20, 8).should_stop([])


@pytest.mark.parametrize("part", ["beliefs", "costs", "lengths", "rate", "spare"])
def test_what_is_damaged_is_refused_and_changes_nothing(part: str) -> None:
    shared = SharedState(MeasuredStepCosts())
    data = shared.as_data()
    for damaged in (None, 3, [1], {"x": 1}, {}):
        with pytest.raises(ValueError, match="kept"):
            shared.recall({**data, part: damaged})
    with pytest.raises(ValueError, match="kept"):
        shared.recall(None)
    assert shared.as_data() == data
