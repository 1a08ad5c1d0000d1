"""Points, plans and starting points."""

from __future__ import annotations

import pytest

from forerun.models.packed.plan import LayerPlan
from forerun.tune.skipping.space import PUBLISHED, SkipSpace, greedy_sets, starting_points

SPACE = SkipSpace(4)


def test_a_point_and_its_plan_are_the_same_set() -> None:
    plan = LayerPlan.skip(4, (1, 3), (0,))
    point = SPACE.point(plan)
    assert [name for name, value in point.items() if value] == ["mlp.0", "attention.1", "attention.3"]
    assert tuple(point) == SPACE.variables
    assert SPACE.plan(point) == plan


def test_attention_and_mlp_of_every_layer_are_variables_of_their_own() -> None:
    assert len(set(SPACE.variables)) == 8
    plans = {SPACE.without([one]) for one in SPACE.sublayers}
    assert len(plans) == 8
    assert all(len(plan.attention) + len(plan.mlp) == 1 for plan in plans)


@pytest.mark.parametrize("plan", [LayerPlan.early_exit(2, 4), LayerPlan(weights="int4")])
def test_a_plan_that_is_more_than_a_skip_set_is_no_point(plan: LayerPlan) -> None:
    with pytest.raises(ValueError, match="only skipped sublayers are searched"):
        SPACE.point(plan)


def test_a_layer_outside_of_the_model_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be in 0..3, got 4"):
        SPACE.point(LayerPlan(mlp=frozenset({4})))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_set_is_itself_at_its_own_depth_and_keeps_its_share_at_others(name: str) -> None:
    published = PUBLISHED[name]
    own = published.scaled(published.num_layers)
    assert (sorted(own.attention), sorted(own.mlp)) == (sorted(published.attention), sorted(published.mlp))
    for layers in (20, 30, 80):
        scaled = published.scaled(layers)
        assert len(scaled.attention) / layers == pytest.approx(len(published.attention) / 40, abs=0.12)
        assert len(scaled.mlp) / layers == pytest.approx(len(published.mlp) / 40, abs=0.12)
    assert published.scaled(1) == LayerPlan()


def test_published_sets_have_the_sizes_that_their_authors_ship() -> None:
    sizes = {name: (len(one.attention), len(one.mlp)) for name, one in PUBLISHED.items()}
    assert sizes == {"llama-2-13b": (24, 10), "llama-2-13b-chat": (24, 10), "codellama-13b": (22, 12)}


def test_greedy_sets_hold_the_least_harmful_sublayers() -> None:
    harms = dict.fromkeys(SPACE.sublayers, 1.0) | {("mlp", 2): 0.1, ("attention", 3): 0.2, ("mlp", 0): 0.3}
    sets = dict(greedy_sets(SPACE, harms))
    assert list(sets) == ["greedy 1", "greedy 2", "greedy 4"]
    assert sets["greedy 1"] == LayerPlan.skip(4, (), (2,))
    assert sets["greedy 2"] == LayerPlan.skip(4, (3,), (2,))
    assert {("mlp", 0)} < {("mlp", layer) for layer in sets["greedy 4"].mlp}


def test_starting_points_begin_with_the_empty_set_and_are_all_different() -> None:
    for space in (SkipSpace(1), SPACE, SkipSpace(30)):
        starts = starting_points(space, {one: float(one[1]) for one in space.sublayers})
        assert next(iter(starts.items())) == ("nothing", LayerPlan())
        assert len(set(starts.values())) == len(starts)
    assert {"greedy 8", "greedy 15", "greedy 30", "llama-2-13b scaled"} < set(starts)
    assert not any(name.startswith("greedy") for name in starting_points(SPACE, {}))
