import json
from itertools import pairwise
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest

from forerun.core.policy import LengthPolicy
from forerun.core.values import Round
from forerun.engine.stats import Stats
from forerun.policies import fixed
from forerun.policies.governor import MEASURE_AGAIN, MEASURED_FIRST, PROBE, SHORTEST_REST, LossAccount, build

from .rounds import chain, round_of
from .worlds import World, rounds, speed, steady, varied


def observe(policy: LengthPolicy, seconds: float, accepted: int = 0, drafted: int = 3) -> bool:
    """A round as the policy wants it: plain ones take a second. Whether it was drafted."""
    if policy.should_stop([]):
        policy.observe([], timed(0, 0, 1.0, held_back=True))
        return False
    policy.observe(chain(*[0.5] * drafted), timed(drafted, accepted, seconds))
    return True


def timed(drafted: int, accepted: int, seconds: float, held_back: bool = False) -> Round:
    made = round_of(chain(*[0.5] * drafted), accepted, seconds=seconds)
    return Round(made.tokens, made.draft, made.verdict, made.start, timing=made.timing, held_back=held_back)


def history(policy: LengthPolicy, n: int, seconds: float, accepted: int = 0) -> list[bool]:
    return [observe(policy, seconds, accepted) for _ in range(n)]


def switch_off(policy: LengthPolicy) -> None:
    history(policy, MEASURED_FIRST, 1.0)
    while observe(policy, 3.0):
        pass


def test_plain_rounds_are_measured_first() -> None:
    assert history(build(inner="fixed")(), MEASURED_FIRST + 2, 1.5, accepted=1) == [False] * MEASURED_FIRST + [True] * 2


def test_it_switches_off_when_the_credit_is_used_up_as_computed_by_hand() -> None:
    """Three plain rounds leave 4 + 3 * 0.02 = 4.06; a drafted round of one token in 2.5 plain rounds costs 1.5 - 0.02."""
    policy = build(inner="fixed", credit=4.0, loss=0.02)()
    assert history(policy, MEASURED_FIRST + 5, 2.5) == [False] * MEASURED_FIRST + [True] * 3 + [False] * 2


def test_a_draft_that_pays_goes_on_and_plain_rounds_are_measured_again_now_and_then() -> None:
    drafted = history(build(inner="fixed")(), 2 * MEASURE_AGAIN + 10, 1.5, accepted=1)[MEASURED_FIRST:]
    assert drafted.count(False) == 2
    assert drafted.index(False) == MEASURE_AGAIN


def test_it_switches_on_again_when_a_probe_shows_that_it_pays() -> None:
    policy = build(inner="fixed")()
    switch_off(policy)
    rest = history(policy, 800, 1.5, accepted=2)
    first = rest.index(True)
    assert first >= SHORTEST_REST - 1
    assert all(rest[first : first + MEASURE_AGAIN])


def test_rests_grow_while_probes_fail() -> None:
    drafted = history(build(inner="fixed")(), 3000, 1.3)
    probes = [n for n in range(1, len(drafted)) if drafted[n] and not drafted[n - 1]]
    gaps = [after - before for before, after in pairwise(probes)]
    assert len(gaps) >= 3
    assert gaps[-1] > 4 * gaps[1]


def test_the_first_round_of_a_probe_only_brings_the_drafter_up_to_date() -> None:
    policy = build(inner="fixed", loss=0.5)()
    switch_off(policy)
    while policy.should_stop([]):
        observe(policy, 0.0)
    seconds = [4.0, 1.5, 1.5, 1.5, 1.5]
    assert [observe(policy, each, accepted=1) for each in seconds] == [True] * 5
    assert len(seconds) > PROBE


@pytest.mark.parametrize("inner", [{"inner": "fixed", "k": 8}, {"inner": "threshold"}, {"inner": "cost"}])
@pytest.mark.parametrize(("step", "slope"), [(0.5, 0.05), (0.1, 0.02), (0.001, 0.2)])
def test_a_drafter_of_5_percent_acceptance_runs_at_97_percent_of_plain(
    inner: dict[str, Any], step: float, slope: float
) -> None:
    """A suite of 80 answers of 64 tokens."""
    world = World(steady(0.05, 80, 64), 0.03 * step, lambda rows: 0.03 * (1 + slope * (rows - 1)), noise=0.03)
    assert speed(world, build(**inner)) >= 0.97


def test_without_the_governor_it_does_not() -> None:
    world = World(steady(0.05, 20, 64), 0.5, lambda rows: 1.0)
    assert speed(world, fixed.build(k=8)) < 0.3


@pytest.mark.parametrize(("base", "step"), [(0.8, 0.1), (0.6, 0.05)])
def test_it_costs_a_good_drafter_next_to_nothing(base: float, step: float) -> None:
    world = World(varied(base, 40, 64), step, lambda rows: 1.0, noise=0.03)
    assert speed(world, build(inner="fixed", k=3)) > 0.97 * speed(world, fixed.build(k=3))


def test_a_suite_that_turns_good_is_drafted_again_and_the_statistics_tell() -> None:
    world = World([*steady(0.0, 10, 64), *steady(0.95, 40, 64)], 0.1, lambda rows: 1.0)
    made = [round for _, round in rounds(world, build(inner="fixed", k=4))]
    bad, good = Stats(made[:600]), Stats(made[-300:])
    assert bad.held_back > 500
    assert bad.switches >= 2
    assert good.held_back <= 3
    assert good.tokens_per_round > 3


@pytest.mark.parametrize("carry", [True, False])
def test_the_next_request_is_switched_off_too_unless_told_to_begin_anew(carry: bool) -> None:
    make = build(inner="fixed", carry=carry)
    history(make(), 30, 3.0)
    assert history(make(), MEASURED_FIRST + 1, 3.0)[-1] != carry


def test_the_inner_policy_decides_while_it_is_on_and_learns() -> None:
    policy = build(inner="heuristic", k=2, max_steps=9)()
    history(policy, MEASURED_FIRST, 1.0)
    steps = chain(0.5, 0.5)
    assert policy.should_stop(steps)
    policy.observe(steps, timed(2, 2, 1.1))
    assert not policy.should_stop(steps)


def test_rounds_that_nobody_timed_teach_nothing() -> None:
    policy = build(inner="fixed")()
    for _ in range(9):
        policy.observe([], timed(0, 0, 0.0, held_back=True))
    assert policy.should_stop([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"credit": 0.0}, "credit must be above 0 and finite, got 0.0"),
        ({"loss": 1.0}, r"loss must be in \(0, 1\), got 1.0"),
        ({"inner": "governor"}, "inner must be another policy than 'governor' itself"),
        ({"inner": "nope"}, "unknown policy 'nope'; known: "),
        ({"inner": "fixed", "confidence": 0.3}, "policy 'fixed' has no option 'confidence'; its options: k"),
    ],
)
def test_an_option_out_of_range_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_a_thread_waits_while_another_one_writes_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    factory, writing, overlaps = build(inner="fixed"), Event(), []

    def learn(account: LossAccount, round: Round) -> None:
        writing.set()
        sleep(0.02)
        writing.clear()

    monkeypatch.setattr(LossAccount, "learn", learn)
    monkeypatch.setattr(LossAccount, "holds_back", property(lambda account: overlaps.append(writing.is_set())))
    thread = Thread(target=lambda: factory().observe([], timed(0, 0, 1.0)))
    thread.start()
    writing.wait()
    factory().should_stop([])
    thread.join()
    assert overlaps == [False]


def test_one_round_that_was_interrupted_does_not_end_drafting() -> None:
    """A round of 100 plain ones between good ones; but where every draft takes so long, nothing is drafted."""
    account, bad = LossAccount(4.0, 0.01), LossAccount(4.0, 0.01)
    for one in (account, bad):
        for _ in range(3):
            one.learn(timed(0, 0, 1.0, held_back=True))
    for seconds in [1.2] * 10 + [100.0] + [1.2] * 10:
        account.learn(timed(3, 1, seconds))
        assert not account.holds_back
    for _ in range(4):
        bad.learn(timed(3, 1, 100.0))
    assert bad.holds_back


def test_a_busy_machine_interrupts_plain_rounds_as_often_as_drafted_ones() -> None:
    """Drafts gain a little; every third round of either kind takes three times as long."""
    account = LossAccount(4.0, 0.01)
    busy = [1.0, 1.0, 3.0]
    held = 0
    for number in range(900):
        if account.holds_back:
            held += 1
            account.learn(timed(0, 0, busy[number % 3], held_back=True))
        else:
            account.learn(timed(3, int(number % 3 == 0), 1.1 * busy[number % 3]))
    assert held < 100


def test_what_an_account_learnt_goes_on_and_the_time_of_plain_rounds_is_measured_anew() -> None:
    account, kept = LossAccount(4.0, 0.01), LossAccount(4.0, 0.01)
    for _ in range(3):
        account.learn(timed(0, 0, 1.0, held_back=True))
    for _ in range(10):
        account.learn(timed(3, 0, 3.0))
    assert account.holds_back
    kept.recall(json.loads(json.dumps(account.as_data())))
    for _ in range(4):
        assert kept.holds_back
        kept.learn(timed(0, 0, 9.0, held_back=True))
    assert kept.as_data()["account"][3] >= 4


def test_where_a_text_begins_what_is_switched_off_is_tried_once_the_account_covers_it() -> None:
    policy = build(inner="fixed", loss=0.02)()
    switch_off(policy)
    assert history(policy, SHORTEST_REST + 1, 1.02)[-1] is False
    policy.begin(0, 100)
    assert history(policy, 1, 1.02) == [False]
    history(policy, 400, 1.02)
    policy.begin(0, 100)
    assert any(history(policy, 2, 1.02))


def test_probes_that_cost_little_are_soon_repeated() -> None:
    drafted = history(build(inner="fixed", credit=0.5)(), 3000, 1.03)
    probes = [n for n in range(1, len(drafted)) if drafted[n] and not drafted[n - 1]]
    assert len(probes) > 40
    assert sum(drafted) / len(drafted) < 0.5


@pytest.mark.parametrize(
    "data", [None, [], {}, {"account": [1, 1]}, {"account": [1, 1, 16, "x"]}, {"account": [1, 1, 16, float("inf")]}]
)
def test_an_account_that_is_damaged_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="kept"):
        LossAccount(4.0, 0.01).recall(data)
