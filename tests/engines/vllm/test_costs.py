from __future__ import annotations

from typing import Any

import pytest
import torch

from forerun.core.values import Step
from forerun.engines.vllm.costs import BatchRound, LoadCosts, drafters_of, load_of
from forerun.policies.costs.step_costs import FIRST_SLOPE, FIRST_STEP


def told(*rounds: tuple[int, int, float], **given: Any) -> LoadCosts:
    """Rounds of so many requests and drafted tokens, in seconds."""
    costs = LoadCosts()
    for requests, drafted, seconds in rounds:
        costs.learn_round(BatchRound(requests, drafted, requests, given.get("drafting", 0.0), seconds, False))
    return costs


def at(costs: LoadCosts, requests: int) -> LoadCosts:
    costs.requests = requests
    return costs


def test_nothing_is_known_at_first() -> None:
    assert LoadCosts().verify(1) == 1
    assert LoadCosts().verify(3) == pytest.approx(1 + 2 * FIRST_SLOPE)
    assert {has_row: LoadCosts().step(has_row) for has_row in (True, False)} == FIRST_STEP


def test_a_round_with_drafts_before_any_plain_one_tells_nothing() -> None:
    assert told((4, 8, 1.0)).verify(3) == LoadCosts().verify(3)


@pytest.mark.parametrize("requests", [1, 2, 3, 8, 16, 100])
def test_numbers_of_requests_that_differ_by_half_are_other_loads(requests: int) -> None:
    assert load_of(requests) < load_of(2 * requests)
    assert load_of(requests + requests // 8) - load_of(requests) <= 1


def test_rows_are_told_in_plain_rounds_of_as_many_requests() -> None:
    """One request: 5 rows in 1.2 plain rounds; 16 requests: 5 rows each in 4."""
    costs = told(*[(1, 0, 0.010), (1, 4, 0.012), (16, 0, 0.040), (16, 64, 0.160)] * 20)

    assert at(costs, 1).verify(1) == pytest.approx(1, abs=0.02)
    assert at(costs, 1).verify(5) == pytest.approx(1.2, abs=0.02)
    assert at(costs, 16).verify(1) == pytest.approx(1, abs=0.02)
    assert at(costs, 16).verify(5) == pytest.approx(4, abs=0.05)
    assert at(costs, 16).verify(3) == pytest.approx(2.5, abs=0.1)


def test_drafts_of_few_of_the_requests_count_as_parts_of_a_row() -> None:
    costs = told(*[(8, 0, 0.020), (8, 4, 0.025)] * 20)

    assert at(costs, 8).verify(2) == pytest.approx(1.5, abs=0.05)


def test_a_load_that_was_never_seen_is_taken_for_the_nearest() -> None:
    costs = told(*[(8, 0, 0.020), (8, 8, 0.040), (1, 0, 0.01), (1, 1, 0.01)] * 20)

    assert at(costs, 12).verify(2) == pytest.approx(2, abs=0.1)
    assert at(costs, 2).verify(2) < 1.1


def test_neighbours_of_one_load_are_each_told_by_their_own_plain_rounds() -> None:
    """Rounds of 11 and of 12 requests, whose rows cost the same in plain rounds of their own."""
    costs = told(*[(11, 0, 0.011), (12, 0, 0.012), (11, 11, 0.022), (12, 12, 0.024)] * 20)

    assert costs.plain_seconds(11) == pytest.approx(0.011, rel=0.02)
    assert costs.plain_seconds(12) == pytest.approx(0.012, rel=0.02)
    assert load_of(11) == load_of(12)
    assert at(costs, 12).verify(2) == pytest.approx(2, abs=0.05)


def test_a_step_costs_what_a_token_for_each_request_takes() -> None:
    """Drafting 8 tokens for 4 requests takes 2 ms: a token for each of them 1 ms, a tenth of a plain round."""
    costs = told(*[(4, 0, 0.010), (4, 8, 0.012)] * 3, drafting=0.002)

    assert at(costs, 4).step(False) == pytest.approx(0.1)
    assert at(costs, 4).step(True) == FIRST_STEP[True]


def test_a_models_forwards_are_its_own_drafters_and_all_else_is_everyones() -> None:
    """4 requests, 8 tokens in 3 ms, 2 of them in forwards for 4 tokens."""
    costs = LoadCosts()
    drafters = {("suffix", False): (4, 0.0), ("draft_model", True): (4, 0.002)}
    for drafted in (0, 8):
        costs.learn_round(BatchRound(4, drafted, 4, 0.003, 0.010, False, drafters if drafted else {}))

    assert at(costs, 4).step(False, "suffix") == pytest.approx(0.05)
    assert at(costs, 4).step(True, "draft_model") == pytest.approx(0.25)
    assert at(costs, 4).step(False, "lookup") == FIRST_STEP[False]


def test_steps_are_told_apart_by_drafter_and_by_rows() -> None:
    copied, row = Step((1,), (-1,), (None,), drafted_by="suffix"), Step((1,), (-1,), (None,), torch.zeros(1, 4))

    assert drafters_of([[copied, copied], [], [row]]) == {("suffix", False): (2, 0.0), ("", True): (1, 0.0)}
