from __future__ import annotations

from statistics import mean

import pytest

from forerun.errors import UnsupportedOption
from forerun.train.layerskip.schedule import depth_rate, dropout_rates, enabled, exit_scale, exit_weights, time_rate


def test_the_mean_rate_is_the_one_the_paper_compares_with() -> None:
    assert mean(dropout_rates(0, 1, 32, 0.2)) == pytest.approx(0.0889, abs=5e-5)


def test_rates_double_their_way_up_from_nothing() -> None:
    rates = dropout_rates(0, 1, 32, 0.1)

    assert [round(rates[layer], 4) for layer in (0, 8, 16, 24, 31)] == [0.0, 0.0196, 0.0430, 0.0710, 0.1]
    assert mean(rates) == pytest.approx(0.0445, abs=5e-5)


def test_depth_runs_from_zero_to_one() -> None:
    assert (depth_rate(0, 24), depth_rate(23, 24)) == (0.0, 1.0)


def test_from_scratch_the_rates_grow_over_the_steps() -> None:
    assert dropout_rates(0, 10, 4, 0.2, "exponential") == (0.0, 0.0, 0.0, 0.0)
    assert dropout_rates(9, 10, 4, 0.2, "exponential") == dropout_rates(0, 10, 4, 0.2)
    assert time_rate(5, 11, "exponential") == pytest.approx(2**0.5 - 1)


def test_an_unknown_time_schedule_names_the_known_ones() -> None:
    with pytest.raises(UnsupportedOption, match="'linear'; known: constant, exponential"):
        time_rate(0, 1, "linear")


def test_scales_grow_with_the_square_of_the_depth_and_the_first_is_zero() -> None:
    assert [exit_scale(layer, 6, 1.0) for layer in range(6)] == [0, 1, 3, 6, 10, 5 + 10]
    assert [exit_scale(layer, 6, 0.0) for layer in range(6)] == [0, 0, 0, 0, 0, 5]


@pytest.mark.parametrize(("e_scale", "last"), [(0.1, 0.135), (0.2, 0.111), (1.0, 0.091)])
def test_the_last_layer_keeps_its_share_with_all_exits_on(e_scale: float, last: float) -> None:
    weights = exit_weights(0, 1, 32, e_scale)

    assert weights[31] == pytest.approx(last, abs=5e-4)
    assert sum(weights.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("e_scale", "expected"), [(0.1, (0.029, 0.109, 0.241, 0.622)), (1.0, (0.037, 0.141, 0.310, 0.512))]
)
def test_every_eighth_exit_has_the_weights_of_the_formula(e_scale: float, expected: tuple[float, ...]) -> None:
    weights = exit_weights(0, 1, 32, e_scale, "rotational", 8)

    assert list(weights) == [8, 16, 24, 31]
    assert list(weights.values()) == pytest.approx(expected, abs=6e-4)


def test_without_early_exits_the_last_layer_has_all_the_weight() -> None:
    assert exit_weights(3, 10, 30, 0.0, "rotational", 8) == {29: 1.0}


def test_rotation_brings_each_exit_once_in_its_round() -> None:
    def on(layer: int) -> list[int]:
        return [step for step in range(8) if enabled(layer, step, 100, 30, "rotational", 8)]

    assert [len(on(layer)) for layer in range(29)] == [1] * 29
    assert on(29) == list(range(8))


def test_rotation_moves_one_layer_a_step() -> None:
    assert list(exit_weights(1, 9, 12, 1.0, "rotational", 4)) == [1, 5, 9, 11]
    assert list(exit_weights(2, 9, 12, 1.0, "rotational", 4)) == [2, 6, 10, 11]


def test_gradual_switches_exits_on_from_the_last_down() -> None:
    def on(step: int) -> list[int]:
        return [layer for layer in range(10) if enabled(layer, step, 200, 10, "gradual", 0)]

    assert on(0) == [9]
    assert on(9) == [9]
    assert on(10) == [8, 9]
    assert on(89) == list(range(1, 10))
    assert on(90) == on(199) == list(range(10))


def test_an_unknown_curriculum_names_the_known_ones() -> None:
    with pytest.raises(UnsupportedOption, match="'random'; known: all, rotational, gradual"):
        enabled(0, 0, 1, 4, "random", 1)


def test_a_model_of_one_layer_has_one_exit() -> None:
    assert exit_weights(0, 1, 1, 1.0) == {0: 1.0}
    assert dropout_rates(0, 1, 1, 0.2) == (0.0,)
