from __future__ import annotations

from forerun.engines.vllm.costs import BatchRound
from forerun.engines.vllm.governing import LoadGovernor
from forerun.policies.governor import MEASURE_AGAIN, MEASURED_FIRST, SHORTEST_REST


def run(governor: LoadGovernor, rounds: int, requests: int, tokens: float, plain_rounds: float) -> list[bool]:
    """Whether each round was drafted, where a drafted one gives so many tokens each for so many plain rounds' time."""
    drafted = []
    for _ in range(rounds):
        held_back = governor.holds_back(requests)
        emitted = requests if held_back else round(tokens * requests)
        seconds = 1.0 if held_back else plain_rounds
        governor.learn(BatchRound(requests, 0 if held_back else 1, emitted, 0.0, seconds, held_back), 1.0)
        drafted.append(not held_back)
    return drafted


def test_plain_rounds_are_measured_first_at_each_load() -> None:
    governor = LoadGovernor(4.0, 0.01)

    for requests in (1, 16):
        drafted = run(governor, MEASURED_FIRST + 1, requests, 2.0, 1.0)
        assert drafted == [False] * MEASURED_FIRST + [True]


def test_one_load_is_switched_off_while_another_goes_on() -> None:
    governor = LoadGovernor(4.0, 0.01)
    alone, many = run(governor, 60, 1, 2.0, 1.2), run(governor, 60, 16, 2.0, 3.0)

    assert sum(alone) == 60 - MEASURED_FIRST
    assert sum(many) < 12
    assert many[-SHORTEST_REST // 2 :] == [False] * (SHORTEST_REST // 2)
    assert run(governor, 10, 1, 2.0, 1.2) == [True] * 10


def test_what_is_lost_is_bounded_whatever_the_drafts_are_worth() -> None:
    governor = LoadGovernor(4.0, 0.01)
    drafted = run(governor, 5000, 8, 1.0, 3.0)
    lost = sum(2.0 for one in drafted if one)

    assert lost < 4 + 0.01 * 5000 + 3 * 2


def test_a_load_that_begins_to_pay_is_switched_on_again() -> None:
    governor = LoadGovernor(4.0, 0.01)
    run(governor, 100, 8, 1.0, 3.0)
    drafted = run(governor, 1200, 8, 2.5, 1.5)

    assert sum(drafted[-MEASURE_AGAIN:]) >= MEASURE_AGAIN - 1


def test_neighbours_of_one_load_share_its_account() -> None:
    governor = LoadGovernor(4.0, 0.01)
    run(governor, MEASURED_FIRST, 11, 2.0, 1.0)

    assert not governor.holds_back(12)
    assert governor.holds_back(4)
