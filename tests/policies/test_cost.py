from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random
from threading import Event, Thread
from time import sleep
from typing import Any, final

import pytest

from forerun.core.cost import Cost, Point
from forerun.core.values import Draft, Pack, Round, Step, Timing, Verdict
from forerun.policies import fixed
from forerun.policies.cost import SHARE, CostAware, build, with_costs, worth
from forerun.policies.cost_state import SharedState
from forerun.policies.costs.step_costs import GivenStepCosts, MeasuredStepCosts, StepCosts, given_costs

from .rounds import chain, copied, recorded, round_of
from .worlds import World, best_fixed, blind, mixed, rounds, speed, steady, varied


@pytest.mark.parametrize("seed", range(20))
def test_with_constant_costs_it_is_the_theorem_of_specdecpp(seed: int) -> None:
    """Stop when P(some rejected) >= (c2 + D) / (c1 + c2 + D), where c1 = d and c1 + c2 + D = a / price."""
    random = Random(seed)
    step, verification, acceptance = random.uniform(0.05, 0.4), 1.0, random.uniform(0.5, 1)
    price = random.uniform(1, 3)
    c1, c2 = step, verification - step
    constant = acceptance / price - c1 - c2
    threshold = (c2 + constant) / (c1 + c2 + constant)
    for survives in (n / 50 for n in range(51)):
        if abs(1 - survives - threshold) > 1e-9:
            goes_on = worth(survives, [acceptance] * 20, price, step, lambda rows: verification, length=3) > 0
            assert goes_on == (1 - survives < threshold)


def test_plain_decodings_price_gives_the_theorems_threshold_without_a_constant() -> None:
    """1 - t_d / t_t = 0.75."""
    assert worth(0.26, [1.0], 1 / 4.0, 1.0, lambda rows: 4.0, length=1) > 0
    assert worth(0.24, [1.0], 1 / 4.0, 1.0, lambda rows: 4.0, length=1) < 0


def test_it_looks_beyond_a_step_in_the_cost_curve() -> None:
    """The second row costs as much as a whole forward, the next six nothing."""

    def verify(rows: int) -> float:
        return 1.0 if rows == 1 else 2.0

    assert worth(1.0, [0.9], 1.0, 0.01, verify, length=0) < 0
    assert worth(1.0, [0.9] * 6, 1.0, 0.01, verify, length=0) > 0


def test_nothing_ahead_pays_nothing() -> None:
    assert worth(1.0, [], 1.0, 0.0, lambda rows: 1.0, length=0) == -inf


def test_worth_is_that_of_the_first_plan_that_pays_as_computed_by_hand() -> None:
    """Rows beyond three cost 0.2 more. One token: 0.45 - 2 (0.1 + 0.2) = -0.15; two: 0.855 - 2 (0.2 + 0.2) = 0.055."""
    assert worth(0.5, [0.9, 0.9, 0.9], 2.0, 0.1, lambda rows: 1.0 + 0.2 * (rows > 3), length=2) == pytest.approx(0.055)


def test_worth_is_the_best_of_all_plans_where_none_pays() -> None:
    """One token: 0.4 - 2 (0.1 + 0.2) = -0.2; two: 0.72 - 0.8 = -0.08; three, of which the last is hopeless: 0.72 - 1."""
    assert worth(0.5, [0.8, 0.8, 0.0], 2.0, 0.1, lambda rows: 1.0 + 0.2 * (rows > 3), length=2) == pytest.approx(-0.08)


def test_tokens_after_one_that_is_not_worth_its_own_draft_step_are_not_looked_at() -> None:
    def ahead() -> Iterator[float]:
        yield 0.2
        raise AssertionError("0.5 x 0.2 tokens for 2 x 0.3")

    assert worth(0.5, ahead(), 2.0, 0.3, lambda rows: 1.0, length=2) == pytest.approx(0.1 - 0.6)


@pytest.mark.parametrize(("requests", "looks"), [(1, 8), (2, 8), (16, 2)])
def test_where_nothing_pays_each_of_many_requests_looks_less_often(requests: int, looks: int) -> None:
    """Once in four rounds, or in as many as there are requests."""
    looked: list[int] = []

    def verify(rows: int) -> float:
        looked.append(number)
        return float(rows)

    policy = with_costs(lambda: GivenStepCosts(9.0, verify))()
    policy.begin(0, 100)
    pack = Pack(requests, requests, 0.02) if requests > 1 else None
    for number in range(32):
        before = len(looked)
        assert policy.should_stop([])
        asked = len(looked) > before
        policy.observe([], Round((1,), Draft(), Verdict((), (1,)), 5, timing=Timing(forward=0.02, pack=pack)))
        looked[before:] = [number] * asked

    assert len(looked) == looks


COSTS = (0.05, 0.1, 0.2, 0.3)
# what drafts are like, and what at least is gained over the best fixed length: confidences that tell are worth something
LONG_WORLDS = {
    **{f"steady {a}": (steady(a, 40, 100, seed=1), 0.98) for a in (0.05, 0.2, 0.5)},
    **{f"blind {a}": (blind(a, 40, 100, seed=2), 0.98) for a in (0.05, 0.2, 0.5)},
    **{f"varied {a}": (varied(a, 40, 100, seed=3), at_least) for a, at_least in ((0.1, 0.99), (0.5, 1.0), (0.9, 1.04))},
    **{f"copied {a}": (varied(a, 40, 100, 4, copied=True), 0.98) for a in (0.3, 0.9)},
    "easy and hard requests": (mixed(0.1, 0.9, 40, 100, seed=5), 1.02),
    "turning good": ([*steady(0.05, 20, 100, 6), *steady(0.9, 20, 100, 7)], 1.1),
    "turning bad": ([*steady(0.9, 20, 100, 8), *steady(0.05, 20, 100, 9)], 1.1),
}


@pytest.mark.parametrize("ratio", COSTS)
@pytest.mark.parametrize("name", LONG_WORLDS)
def test_without_tuning_it_is_never_below_98_percent_of_the_best_fixed_length(name: str, ratio: float) -> None:
    """Of plain decoding and 1 to 12 tokens, with hindsight. Costs are measured with noise, nothing is known at first."""
    answers, at_least = LONG_WORLDS[name]
    world = World(answers, ratio * 0.03, lambda rows: 0.03 * (1 + 0.02 * (rows - 1)), noise=0.05)
    assert speed(world, build()) > at_least * best_fixed(world)


@pytest.mark.parametrize("ratio", [0.1, 0.3])
@pytest.mark.parametrize(("acceptance", "at_least"), [(0.2, 0.98), (0.8, 0.97), (0.95, 0.95)])
def test_a_steady_world_is_drafted_at_the_length_that_theory_says_is_best(
    acceptance: float, at_least: float, ratio: float
) -> None:
    """Longer drafts are fewer, so there is less to learn from, and what a length reached is luck in part."""

    def promised(k: int) -> float:
        return (1 - acceptance ** (k + 1)) / (1 - acceptance) / (k * ratio + 1 + 0.05 * k)

    world = World(steady(acceptance, 40, 300, seed=20), ratio, lambda rows: 1 + 0.05 * (rows - 1))
    best = speed(world, fixed.build(k=max(range(1, 13), key=promised)))
    assert speed(world, build(draft_ratio=ratio, row_ratio=0.05)) > at_least * best


def test_times_that_scatter_by_a_third_cost_little() -> None:
    world = World(varied(0.5, 40, 100, seed=3), 0.1, lambda rows: 1 + 0.05 * (rows - 1), noise=0.3)
    assert speed(world, build()) > 0.98 * best_fixed(world)


def test_trying_a_hopeless_drafter_costs_next_to_nothing() -> None:
    """Trying is paid for by what it is expected to lose, which is more in truth where all is lost."""
    made = list(rounds(World(steady(0.0, 60, 64), 0.3, lambda rows: 1.0), build(draft_ratio=0.3)))
    lost = sum(0.3 * len(steps) for steps, _ in made[300:])
    assert 0.2 * SHARE < lost / len(made[300:]) < 2 * SHARE


def test_the_first_draft_after_a_pause_does_not_tell_what_a_step_costs() -> None:
    """It reads the prompt: a second, where a step takes a hundredth."""
    policy = build()()
    for seconds in (1.0, 0.01, 0.01):
        steps = [recorded(0.9)]
        policy.observe(steps, round_of(steps, 1, draft_seconds=seconds, seconds=0.1))
    assert not policy.should_stop([recorded(0.9)])


def test_a_drafter_that_never_pays_is_hardly_asked() -> None:
    world = World(varied(0.05, 20, 64), 0.5, lambda rows: 1.0)
    assert speed(world, build(draft_ratio=0.5)) > 0.9
    assert speed(world, fixed.build(k=3)) < 0.5


def test_a_world_that_turns_good_is_noticed() -> None:
    hard, easy = steady(0.02, 4, 64), steady(0.95, 8, 64)
    world = World([*hard, *easy], 0.1, lambda rows: 1.0)
    lengths = [len(steps) for steps, _ in rounds(world, build(draft_ratio=0.1))]
    assert sum(lengths[150:200]) / 50 < 1
    assert sum(lengths[-30:]) / 30 > 5


def test_longer_drafts_are_tried_though_they_were_never_seen() -> None:
    world = World(blind(1.0, 2, 200), 0.05, lambda rows: 1.0)
    lengths = [len(steps) for steps, _ in rounds(world, build(draft_ratio=0.05))]
    assert lengths[0] < 15
    assert max(lengths) == 20


def test_dearer_drafts_are_shorter() -> None:
    answers = varied(0.8, 10, 64)
    means = []
    for ratio in (0.02, 0.1, 0.3):
        lengths = [len(steps) for steps, _ in rounds(World(answers, ratio, lambda rows: 1.0), build(draft_ratio=ratio))]
        means.append(sum(lengths) / len(lengths))
    assert means == sorted(means, reverse=True)
    assert means[0] > 1.5 * means[2]


def test_copied_and_computed_drafts_are_judged_apart() -> None:
    make = build(draft_ratio=0.1)
    policy = make()
    for _ in range(200):
        sure = [copied()] * 4
        policy.observe(sure, round_of(sure, 4))
        unsure = [recorded(0.99)] * 2
        policy.observe(unsure, round_of(unsure, 0))
    assert not policy.should_stop([copied()])
    assert policy.should_stop([recorded(0.99)])


@pytest.mark.parametrize("carry", [True, False])
def test_the_next_request_knows_what_was_learnt_unless_told_to_begin_anew(carry: bool) -> None:
    make = build(draft_ratio=0.2, carry=carry)
    steps = chain(0.9)
    policy = make()
    for _ in range(300):
        policy.observe(steps, round_of(steps, 0))
    assert make().should_stop(chain(0.9)) == carry


def test_it_stops_at_max_steps_and_tries_again_after_rounds_without_a_draft() -> None:
    policy = build(draft_ratio=0.0, max_steps=2)()
    assert [policy.should_stop([recorded(1.0)] * n) for n in range(4)] == [False, False, True, True]
    dear = build(draft_ratio=0.9, retry=3)()
    for _ in range(60):
        steps = [] if dear.should_stop([]) else [recorded(0.5)]
        dear.observe(steps, round_of(steps, 0))
    held_back = []
    for _ in range(1000):
        held_back.append(dear.should_stop([]))
        steps = [] if held_back[-1] else [recorded(0.5)]
        dear.observe(steps, round_of(steps, 0))
    tries = [n for n, held in enumerate(held_back) if not held]
    assert len(tries) >= 3
    assert sum(after - before for before, after in pairwise(tries)) / (len(tries) - 1) > 0.3 / SHARE


def test_a_callers_own_cost_curve_decides() -> None:
    flat, steep = (Cost("m", "r", "float32", "full", (Point(1, 0, 20.0), Point(9, 0, last))) for last in (20.0, 900.0))
    assert not with_costs(lambda: given_costs(flat, 2.0))().should_stop([])
    assert with_costs(lambda: given_costs(steep, 2.0))().should_stop([])


def counted(confidence: float, drafted_by: str = "") -> Step:
    return Step((7,), (-1,), (None,), confidence=confidence, drafted_by=drafted_by)


def told(policy: CostAware, confidence: float, right: bool, drafted_by: str = "") -> bool:
    """Whether it leaves out such a first token, which the text then shows to be right or not."""
    assert not policy.should_stop([])
    step = counted(confidence, drafted_by)
    left = policy.leaves_out([step])
    steps = [] if left else [step]
    verdict = Verdict((0,), (7, 9)) if steps and right else Verdict((), (7 if right else 9,))
    timing = Timing(draft=1e-5, forward=1.0 + 0.3 * len(steps))
    policy.observe(steps, Round(verdict.tokens, Draft.of(steps), verdict, 3, timing=timing))
    return left


def copying() -> CostAware:
    policy = build()()
    policy.begin(0, 1000, True)
    assert isinstance(policy, CostAware)
    return policy


def leaves_out(policy: CostAware, *steps: Step) -> bool:
    """Whether the next request would leave the last of these out."""
    following = CostAware(policy._shared, 0.0, 20, 8)
    following.begin(0, 1000, True)
    return following.leaves_out(steps)


def test_a_drafter_that_copies_is_asked_in_every_round_and_its_wrong_tokens_are_left_out() -> None:
    policy = copying()
    left = [told(policy, 0.3, right=False) for _ in range(100)]
    assert not left[0]
    assert all(left[30:])


def test_a_token_that_was_left_out_and_right_teaches_that_such_tokens_are_worth_a_row() -> None:
    policy = copying()
    for _ in range(60):
        told(policy, 0.3, right=False)
    left = [told(policy, 0.3, right=True) for _ in range(60)]
    assert (left[0], left[-1]) == (True, False)


def test_sure_tokens_stay_where_doubtful_ones_are_left_out() -> None:
    policy = copying()
    for number in range(200):
        told(policy, *((0.9, True) if number % 2 else (0.05, False)))
    assert not leaves_out(policy, counted(0.9))
    assert leaves_out(policy, counted(0.05))
    assert leaves_out(policy, counted(0.9), counted(0.05))


def test_a_row_that_pays_only_with_those_after_it_is_kept() -> None:
    """The second row costs most of a forward, the next ones nothing, as for some products in float32."""

    def rule(further: float) -> CostAware:
        shared = SharedState(GivenStepCosts(0.0, lambda rows: 1.0 + 0.9 * (rows > 1) + further * max(rows - 2, 0)))
        policy = CostAware(shared, 0.0, 20, 8)
        policy.begin(0, 1000, True)
        return policy

    assert not leaves_out(rule(0.0), counted(0.8))
    assert leaves_out(rule(0.9), counted(0.8))


def test_of_several_drafters_each_is_judged_by_its_own_tokens() -> None:
    policy = copying()
    for _ in range(60):
        told(policy, 0.5, right=True, drafted_by="one")
        told(policy, 0.5, right=False, drafted_by="two")
    assert not leaves_out(policy, counted(0.5, "one"))
    assert leaves_out(policy, counted(0.5, "two"))


def test_of_several_drafters_each_has_the_cost_of_its_own_steps_and_none_that_of_its_reading() -> None:
    """One computes: its first draft, and the first after a pause, read what it missed."""
    shared = SharedState(MeasuredStepCosts())
    policy = CostAware(shared, 1.0, 20, 8)
    policy.begin(0, 1000, True)
    for drafts in range(40):
        copied_now = drafts % 4 == 0
        name, seconds = ("text", 1e-4) if copied_now else ("model", 9.0 if drafts % 4 == 1 else 0.1)
        step = counted(0.9, name) if copied_now else replace(recorded(0.9), drafted_by=name)
        policy.observe([step], round_of([step], 1, draft_seconds=seconds, seconds=1.0))
    assert shared.costs.step(False, "text") == pytest.approx(1e-4)
    assert shared.costs.step(True, "model") == pytest.approx(0.1)


def test_in_an_easy_stretch_a_further_token_has_to_be_likelier() -> None:
    """After three sure tokens the draft gives more than a token for a plain round's time, and so will the next one."""
    shared = SharedState(GivenStepCosts(0.0, lambda rows: 1.0 + 0.25 * (rows - 1)))
    policy = CostAware(shared, 0.0, 20, 8)
    policy.begin(0, 1000, True)
    sure = [counted(0.999)] * 3
    assert not leaves_out(policy, counted(0.4))
    assert leaves_out(policy, *sure, counted(0.4))
    assert not leaves_out(policy, *sure, counted(0.999))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "max_steps and retry must be at least 1, got 0 and 8"),
        ({"retry": 0}, "max_steps and retry must be at least 1, got 20 and 0"),
        ({"optimism": -1.0}, "optimism must be at least 0 and finite, got -1.0"),
        ({"draft_ratio": -0.1}, "draft_ratio must be at least 0 and finite, got -0.1"),
        ({"draft_ratio": inf}, "draft_ratio must be at least 0 and finite, got inf"),
        ({"row_ratio": 0.1}, "row_ratio 0.1 needs draft_ratio too"),
    ],
)
def test_an_option_out_of_range_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


@final
class SlowPace(StepCosts):
    """Learning takes a while, in which nobody should read."""

    def __init__(self) -> None:
        self.learning = Event()
        self.overlaps: list[bool] = []

    def step(self, has_row: bool, drafter: str = "") -> float:
        return 0.1

    def verify(self, rows: int) -> float:
        self.overlaps.append(self.learning.is_set())
        return 1.0

    def learn(self, has_row: bool, steps: int, round: Round, drafter: str = "") -> None:
        self.learning.set()
        sleep(0.02)
        self.learning.clear()


def test_a_thread_waits_while_another_one_learns() -> None:
    costs = SlowPace()
    factory = with_costs(lambda: costs)
    steps = [Step((1,), (-1,), (None,))]
    thread = Thread(target=lambda: factory().observe(steps, round_of(steps, 0)))
    thread.start()
    costs.learning.wait()
    factory().should_stop([])
    thread.join()
    assert costs.overlaps
    assert not any(costs.overlaps)
