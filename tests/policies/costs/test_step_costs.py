import pytest

from forerun.core.cost import Cost, Point
from forerun.core.values import Round
from forerun.policies.costs.cost_line import FIRST_SLOPE
from forerun.policies.costs.step_costs import FIRST_STEP, MeasuredStepCosts, given_costs
from forerun.policies.costs.times_by_rows import SELDOM

from ..rounds import chain, round_of


def timed(rows: int, seconds: float, draft_seconds: float = 0.0) -> Round:
    return round_of(chain(*[0.5] * (rows - 1)), 0, draft_seconds, seconds)


def learnt(*rounds: tuple[int, float]) -> MeasuredStepCosts:
    costs = MeasuredStepCosts()
    for rows, seconds in rounds:
        costs.learn(True, rows - 1, timed(rows, seconds))
    return costs


def test_before_anything_was_measured_a_verification_is_the_unit() -> None:
    costs = MeasuredStepCosts()
    assert costs.verify(1) == 1
    assert costs.step(True) == FIRST_STEP[True]
    assert costs.step(False) == FIRST_STEP[False]


def test_times_are_medians_so_that_one_stall_moves_nothing() -> None:
    costs = MeasuredStepCosts()
    for seconds in (0.02, 0.02, 0.02, 9.0, 0.02):
        costs.learn(True, 2, timed(3, seconds, draft_seconds=seconds / 2))
    assert costs.verify(3) == pytest.approx(0.02)
    assert costs.step(True) == pytest.approx(0.005)


def test_copied_and_computed_steps_are_told_apart() -> None:
    costs = MeasuredStepCosts()
    costs.learn(True, 2, timed(3, 1.0, draft_seconds=0.4))
    costs.learn(False, 4, timed(5, 1.0, draft_seconds=0.004))
    assert costs.step(True) == pytest.approx(0.2)
    assert costs.step(False) == pytest.approx(0.001)


def test_row_counts_never_seen_lie_on_the_line_through_the_others() -> None:
    costs = learnt(*[(rows, 1 + 0.1 * (rows - 1)) for rows in (1, 3, 9)] * 30)
    assert costs.verify(5) == pytest.approx(1.4, rel=0.01)
    assert costs.verify(15) == pytest.approx(2.4, rel=0.01)


def test_a_step_in_the_curve_is_kept_where_it_was_seen_often() -> None:
    costs = learnt(*[(rows, 2.0 if rows > 4 else 1.0) for rows in (1, 2, 4, 5, 6, 8)] * 30)
    assert costs.verify(4) < 1.1
    assert costs.verify(5) > 1.8


def test_one_row_count_alone_gives_the_usual_slope() -> None:
    costs = learnt((1, 2.0))
    assert costs.verify(11) == pytest.approx(2.0 * (1 + 10 * FIRST_SLOPE * 3 / 3), rel=0.01)


@pytest.mark.parametrize("rows", [1, 2, 21])
def test_a_verification_always_takes_time(rows: int) -> None:
    assert learnt((21, 1.0)).verify(rows) > 0
    assert learnt((18, 1.0), (21, 5.0)).verify(rows) >= 0.5
    assert learnt((1, 3.0), (2, 1.0)).verify(rows) >= 0.5


def test_a_round_that_nobody_timed_teaches_nothing() -> None:
    costs = learnt((3, 0.0))
    assert costs.verify(3) == 1


def test_the_pace_follows_a_machine_that_slows_down() -> None:
    costs = learnt(*[(1, 1.0)] * 100, *[(1, 2.0)] * 32 * SELDOM)
    assert costs.verify(1) == pytest.approx(2.0)


def test_a_measured_curve_is_taken_as_it_is() -> None:
    curve = Cost("m", "r", "float32", "full", (Point(1, 0, 20.0), Point(8, 0, 27.0)))
    costs = given_costs(curve, draft_ms=3.0)
    assert (costs.verify(1), costs.verify(3)) == (20.0, 22.0)
    assert (costs.step(True), costs.step(False)) == (3.0, 0.0)


def test_reading_is_as_much_dearer_than_a_step_as_a_verification_until_it_was_seen() -> None:
    curve = Cost("m", "r", "float32", "full", (Point(1, 0, 20.0), Point(101, 0, 120.0)))
    assert given_costs(curve, draft_ms=3.0).read(101) == pytest.approx(3.0 * 6)
    assert MeasuredStepCosts().read(101) == pytest.approx(FIRST_STEP[True] * (1 + FIRST_SLOPE * 100))


def test_reading_is_measured_by_the_token() -> None:
    costs = MeasuredStepCosts()
    for _ in range(3):
        costs.learn(True, 2, timed(3, 1.0, draft_seconds=0.2))
    for rows, seconds in ((100, 1.2), (50, 0.7), (10, 9.0)):
        costs.learn_reading(rows, 2, timed(3, 1.0, draft_seconds=seconds))
    assert costs.read(1000) == pytest.approx(0.1 + 1000 * 0.01)
    costs.learn_reading(10, 2, timed(3, 0.0, draft_seconds=5.0))
    assert costs.read(1000) == pytest.approx(0.1 + 1000 * 0.01)


def test_plain_rounds_are_learnt_together_as_one_by_one() -> None:
    together, apart = MeasuredStepCosts(), MeasuredStepCosts()
    times = [0.02, 0.03, 0.0, 0.025, 0.021, 0.04]
    for seconds in times:
        apart.learn(False, 0, timed(1, seconds))
    together.learn_plain(times)
    assert together.verify(1) == apart.verify(1)
    assert together.verify(3) == apart.verify(3)
    together.learn_plain([])
    assert together.verify(1) == apart.verify(1)


def test_costs_are_made_anew_when_an_eighth_of_the_times_is_new() -> None:
    costs = learnt(*[(1, 0.02)] * 24)
    assert costs.verify(1) == pytest.approx(0.02)
    costs.learn_plain([0.08] * 3)
    costs.learn_plain([0.08] * 24 * SELDOM)
    assert costs.verify(1) > 0.05
