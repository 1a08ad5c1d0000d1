from __future__ import annotations

from typing import Any

import pytest

from forerun.train.heads.recipes import DiscoRecipe, HeadRecipe


@pytest.mark.parametrize("recipe", [DiscoRecipe, HeadRecipe])
def test_a_recipe_needs_nothing(recipe: Any) -> None:
    assert recipe().epochs >= 1
    assert recipe().seed == 0


@pytest.mark.parametrize("given", [{"top": 0}, {"width": 0}, {"epochs": 0}, {"rows": 0}], ids=str)
def test_a_classifiers_counts_begin_at_1(given: dict[str, Any]) -> None:
    [name] = given
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        DiscoRecipe(**given)


@pytest.mark.parametrize("given", [{"epochs": 0}, {"rows": 0}], ids=str)
def test_a_heads_counts_begin_at_1(given: dict[str, Any]) -> None:
    [name] = given
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        HeadRecipe(**given)


@pytest.mark.parametrize("recipe", [DiscoRecipe, HeadRecipe])
@pytest.mark.parametrize("rate", [0, -1.0, float("nan")])
def test_a_learning_rate_is_above_0(recipe: Any, rate: float) -> None:
    with pytest.raises(ValueError, match="must be above 0, got"):
        recipe(learning_rate=rate)


def test_a_probe_has_no_blocks_and_a_warm_up_is_a_share() -> None:
    assert HeadRecipe(depth=0).depth == 0
    with pytest.raises(ValueError, match="depth must be at least 0, got -1"):
        HeadRecipe(depth=-1)
    with pytest.raises(ValueError, match=r"the warm-up share must be in \[0, 1\), got 1"):
        HeadRecipe(warmup=1)
