from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forerun.errors import UnsupportedOption
from forerun.train.layerskip.presets import PRESETS, preset


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("from_scratch", (0.1, 0.2, "rotational", "exponential", 8e-4, True)),
        ("continual", (0.1, 0.2, "rotational", "constant", 3e-5, False)),
        ("fine_tune", (0.2, 1.0, "gradual", "constant", 1e-4, False)),
    ],
)
def test_presets_hold_the_values_of_the_paper(name: str, values: tuple[Any, ...]) -> None:
    found = preset(name)

    assert (found.p_max, found.e_scale, found.curriculum, found.time, found.learning_rate, found.fresh) == values


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UnsupportedOption, match="'quick'; known: from_scratch, continual, fine_tune"):
        preset("quick")


def test_rotation_zero_is_one_less_than_there_are_layers() -> None:
    recipe = preset("from_scratch")

    assert list(recipe.weights(5, 100, 24)) == [5, 23]
    assert list(recipe.weights(5 + 23, 100, 24)) == [5, 23]


def test_the_rates_of_a_recipe_follow_its_time_schedule() -> None:
    recipe = preset("from_scratch")

    assert recipe.rates(0, 10, 4) == (0, 0, 0, 0)
    assert recipe.rates(9, 10, 4)[-1] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"p_max": 1.5}, r"p_max must be within \[0, 1\], got 1.5"),
        ({"e_scale": -0.1}, r"e_scale must be within \[0, 1\], got -0.1"),
        ({"curriculum": "steep"}, "unknown curriculum 'steep'; known: all"),
        ({"time": "late"}, "unknown time schedule 'late'; known: constant"),
        ({"rotation": -1}, "rotation must be 0 .* or more, got -1"),
        ({"learning_rate": 0.0}, "learning rate must be above 0"),
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedOption, match=said):
        replace(preset("continual"), **change)


def test_only_no_dropout_and_no_exits_is_ordinary_training() -> None:
    assert [name for name, recipe in PRESETS.items() if recipe.ordinary] == []
    assert replace(preset("fine_tune"), p_max=0, e_scale=0).ordinary
    assert not replace(preset("fine_tune"), p_max=0).ordinary
    assert not replace(preset("fine_tune"), e_scale=0).ordinary
