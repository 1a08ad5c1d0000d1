from __future__ import annotations

import pytest

from forerun.train.distil.recipe import DistilRecipe


def test_a_recipe_needs_nothing() -> None:
    assert DistilRecipe().passes == 2
    assert DistilRecipe(fade=0).fade == 0


@pytest.mark.parametrize("name", ["epochs", "passes", "rows", "vocabulary"])
def test_counts_begin_at_1(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        DistilRecipe(**{name: 0})


@pytest.mark.parametrize("fade", [-0.1, float("nan")])
def test_a_fade_is_at_least_0(fade: float) -> None:
    with pytest.raises(ValueError, match="fade must be at least 0, got"):
        DistilRecipe(fade=fade)


@pytest.mark.parametrize("rate", [0, -1.0, float("nan")])
def test_a_learning_rate_is_above_0(rate: float) -> None:
    with pytest.raises(ValueError, match="the learning rate must be above 0, got"):
        DistilRecipe(learning_rate=rate)
