import json
from dataclasses import FrozenInstanceError

import pytest

from forerun.core.cost import Cost, Costs, Point, draft_ratio, predicted_speedup
from forerun.errors import UnsupportedOption


def cost(*points: tuple[int, int, float], model: str = "target", plan: str = "full") -> Cost:
    return Cost(model, "HFRunner", "bf16", plan, tuple(Point(rows, prefix, ms) for rows, prefix, ms in points))


TARGET = cost((1, 64, 10.0), (2, 64, 12.0), (4, 64, 20.0), (1, 1024, 14.0), (2, 1024, 16.0), (4, 1024, 30.0))


def test_a_measured_point_is_given_back_as_it_is() -> None:
    assert TARGET.ms(2, 64) == 12
    assert TARGET.ms(4, 1024) == 30


def test_between_measured_rows_the_cost_lies_on_a_straight_line() -> None:
    assert TARGET.ms(3, 64) == 16
    assert TARGET.ms(1.5, 64) == 11


def test_between_measured_prefixes_the_cost_lies_on_a_straight_line() -> None:
    assert TARGET.ms(1, (64 + 1024) / 2) == 12
    assert TARGET.ms(3, (64 + 1024) / 2) == pytest.approx((16 + 23) / 2)


def test_outside_the_measured_prefixes_the_nearest_one_holds() -> None:
    assert TARGET.ms(2, 0) == 12
    assert TARGET.ms(2, 100_000) == 16


def test_without_a_prefix_the_shortest_measured_one_is_meant() -> None:
    assert TARGET.ms(4) == TARGET.ms(4, 64)


def test_beyond_the_most_rows_the_last_line_goes_on() -> None:
    assert TARGET.ms(6, 64) == 28
    assert TARGET.ms(6, 1024) == 44


def test_more_rows_than_measured_never_get_cheaper() -> None:
    falling = cost((1, 0, 9.0), (2, 0, 5.0))
    assert falling.ms(10) == 5


def test_a_prefix_measured_at_one_row_count_costs_the_same_everywhere() -> None:
    assert cost((4, 0, 7.0)).ms(1) == 7
    assert cost((4, 0, 7.0)).ms(9) == 7


def test_no_rows_cost_nothing() -> None:
    assert TARGET.ms(0) == 0


def test_a_forward_is_padded_where_more_rows_are_clearly_faster() -> None:
    slow_alone = cost((1, 0, 40.0), (2, 0, 20.0), (3, 0, 21.0), (8, 0, 50.0))
    assert slow_alone.best_rows(1) == 2
    assert slow_alone.best_rows(2) == 2


def test_a_forward_is_not_padded_for_a_gain_within_the_noise() -> None:
    assert cost((1, 0, 10.0), (2, 0, 9.6)).best_rows(1) == 1
    assert TARGET.best_rows(1) == 1


def test_a_forward_is_not_padded_where_the_measurements_overlap() -> None:
    points = (Point(1, 0, 40.0, 30.0), Point(2, 0, 20.0, 12.0))
    assert Cost("m", "HFRunner", "bf16", "full", points).best_rows(1) == 1
    apart = (Point(1, 0, 40.0, 20.0), Point(2, 0, 20.0, 12.0))
    assert Cost("m", "HFRunner", "bf16", "full", apart).best_rows(1) == 2


def test_a_row_count_that_was_not_measured_is_padded_to_one_that_was() -> None:
    assert cost((1, 0, 10.0), (4, 0, 30.0), (8, 0, 12.0)).best_rows(5) == 8


def test_a_padded_cost_is_that_of_the_rows_that_run() -> None:
    slow_alone = cost((1, 64, 30.0), (2, 64, 12.0), (4, 64, 20.0), (1, 1024, 40.0), (2, 1024, 16.0), (4, 1024, 30.0))
    padded = slow_alone.padded()
    assert [padded.ms(rows, 64) for rows in (1, 2, 4)] == [12, 12, 20]
    assert [padded.ms(rows, 1024) for rows in (1, 2, 4)] == [16, 16, 30]
    assert TARGET.padded() == TARGET


def test_padding_follows_the_prefix() -> None:
    mixed = cost((1, 0, 10.0), (2, 0, 11.0), (1, 100, 40.0), (2, 100, 20.0))
    assert (mixed.best_rows(1, 0), mixed.best_rows(1, 100)) == (1, 2)


@pytest.mark.parametrize("point", [(0, 64, 1.0), (1, -1, 1.0), (1, 64, 0.0)])
def test_an_impossible_point_is_refused(point: tuple[int, int, float]) -> None:
    with pytest.raises(ValueError, match="rows >= 1, prefix >= 0 and ms > 0"):
        cost(point)


def test_a_cost_without_points_is_refused() -> None:
    with pytest.raises(ValueError, match="no measured point"):
        cost()


def test_a_cost_can_not_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        TARGET.plan = "exit 3"  # type: ignore[misc]


def test_costs_survive_a_round_trip_through_json() -> None:
    costs = Costs((TARGET, cost((1, 64, 3.5), plan="exit 8"), cost((1, 64, 2.0), model="small")))
    assert Costs.from_dict(json.loads(json.dumps(costs.as_dict()))) == costs


def test_costs_are_found_by_plan_model_and_weights() -> None:
    int4 = Cost("target", "LeanRunner", "int4", "exit 8", (Point(1, 64, 1.5),))
    costs = Costs((TARGET, cost((1, 64, 3.5), plan="exit 8"), cost((1, 64, 2.0), model="small"), int4))
    assert costs.target is TARGET
    assert costs.of() is TARGET
    assert costs.of("exit 8").ms(1) == 3.5
    assert costs.of(model="small").ms(1) == 2
    assert costs.of("exit 8", weights="int4") is int4


def test_a_cost_that_was_not_measured_is_named_with_those_that_were() -> None:
    with pytest.raises(UnsupportedOption, match="target bf16 exit 9; measured: target bf16 full"):
        Costs((TARGET,)).of("exit 9")


def test_costs_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one entry"):
        Costs(())


def test_the_draft_ratio_compares_single_rows_after_the_same_prefix() -> None:
    draft = cost((1, 64, 5.0), (1, 1024, 3.5), plan="exit 8")
    assert draft_ratio(TARGET, draft) == 0.5
    assert draft_ratio(TARGET, draft, 1024) == 0.25


def test_plain_decoding_is_predicted_to_be_as_fast_as_itself() -> None:
    assert predicted_speedup(TARGET, tokens_per_round=1, k=0) == 1


def test_lookup_is_predicted_from_the_verification_alone() -> None:
    assert predicted_speedup(TARGET, tokens_per_round=3, k=3) == pytest.approx(3 / 2)


def test_drafting_adds_k_times_c_to_a_round() -> None:
    assert predicted_speedup(TARGET, tokens_per_round=3, k=3, c=0.5) == pytest.approx(3 / (1.5 + 2))


def test_a_mean_draft_length_between_two_row_counts_is_predicted_too() -> None:
    assert predicted_speedup(TARGET, tokens_per_round=2, k=0.5) == pytest.approx(2 / 1.1)


def test_the_prediction_follows_the_prefix() -> None:
    assert predicted_speedup(TARGET, 2, 1, prefix=1024) == pytest.approx(2 / (16 / 14))


@pytest.mark.parametrize(("k", "c"), [(-1, 0.1), (1, -0.1)])
def test_a_negative_draft_length_or_cost_is_refused(k: float, c: float) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        predicted_speedup(TARGET, 1, k, c)
