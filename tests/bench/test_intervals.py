import numpy as np
import pytest

from forerun.bench.intervals import Estimate, median_of, ratio_of_rates, ratio_of_sums


def test_the_median_is_the_middle_value_and_lies_in_its_interval() -> None:
    figure = median_of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert figure is not None
    assert figure.value == 3
    assert 1 <= figure.low <= 3 <= figure.high <= 5


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert median_of([2.0] * 7) == Estimate(2, 2, 2)


def test_of_no_values_there_is_no_median() -> None:
    assert median_of([]) is None


def test_the_interval_shrinks_with_more_prompts() -> None:
    few = median_of(list(np.random.default_rng(0).normal(10, 1, 10)))
    many = median_of(list(np.random.default_rng(0).normal(10, 1, 400)))
    assert few is not None
    assert many is not None
    assert many.high - many.low < (few.high - few.low) / 2


def test_the_interval_of_a_median_covers_the_true_one_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        figure = median_of(list(rng.normal(0, 1, 40)))
        assert figure is not None
        hits += figure.low <= 0 <= figure.high
    assert 0.9 <= hits / 200 <= 0.99


def test_the_same_values_give_the_same_interval_again() -> None:
    values = [1.0, 5.0, 2.0, 8.0]
    assert median_of(values) == median_of(values)


def test_a_ratio_of_sums_weighs_prompts_by_their_size() -> None:
    figure = ratio_of_sums([10.0, 90.0], [1.0, 3.0])
    assert figure is not None
    assert figure.value == 25
    assert (figure.low, figure.high) == (10, 30)


def test_a_ratio_of_sums_needs_something_to_divide_by() -> None:
    assert ratio_of_sums([], []) is None
    assert ratio_of_sums([1.0], [0.0]) is None


def test_a_prompt_without_time_does_not_break_the_interval() -> None:
    figure = ratio_of_sums([0.0, 10.0], [0.0, 2.0])
    assert figure is not None
    assert (figure.value, figure.low, figure.high) == (5, 5, 5)


def test_a_ratio_of_rates_compares_totals() -> None:
    figure = ratio_of_rates([10, 30], [1, 1], [10, 30], [2, 6])
    assert figure is not None
    assert figure.value == pytest.approx((40 / 2) / (40 / 8))


def test_a_ratio_of_rates_is_paired_by_prompt() -> None:
    figure = ratio_of_rates([10, 1000], [1, 1], [10, 1000], [2, 2])
    assert figure is not None
    assert (figure.low, figure.high) == pytest.approx((2, 2))


@pytest.mark.parametrize("empty", [0, 1, 2, 3])
def test_a_ratio_of_rates_needs_tokens_and_time_on_both_sides(empty: int) -> None:
    values = [[4.0], [2.0], [4.0], [2.0]]
    values[empty] = [0.0]
    figure = ratio_of_rates(*values)
    assert figure is None or (empty == 0 and figure.value == 0)
