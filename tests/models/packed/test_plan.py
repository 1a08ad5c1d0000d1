"""Plans: what they leave out, and which are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forerun.errors import UnsupportedOption
from forerun.models.packed.plan import FULL, LayerPlan


def test_the_empty_plan_leaves_nothing_out() -> None:
    assert LayerPlan() == FULL
    assert not any(FULL.skips_layer(layer) for layer in range(8))


def test_an_early_exit_leaves_out_every_layer_from_there_on() -> None:
    plan = LayerPlan.early_exit(2, 5)
    assert [plan.skips_layer(layer) for layer in range(5)] == [False, False, True, True, True]
    assert plan.exit_layer == 2


def test_skip_sets_leave_out_attention_and_mlp_apart() -> None:
    plan = LayerPlan.skip(4, attention=[0, 1], mlp=[1, 3])
    assert (plan.attention, plan.mlp, plan.exit_layer) == ({0, 1}, {1, 3}, None)
    assert [plan.skips_layer(layer) for layer in range(4)] == [False, True, False, False]


def test_rows_of_other_activations_never_resume() -> None:
    assert LayerPlan.early_exit(2, 4).resumes_at == 2
    assert replace(LayerPlan.early_exit(2, 4), activations=8).resumes_at is None


@pytest.mark.parametrize("bits", [4, 1, 32, -8])
def test_unknown_activations_are_refused(bits: int) -> None:
    with pytest.raises(UnsupportedOption, match=f"activations are held in 8 or 16 bits, got {bits}"):
        LayerPlan(activations=bits)


@pytest.mark.parametrize("exit_layer", [-1, 0, 4, 9])
def test_an_exit_outside_the_model_is_refused_with_the_range(exit_layer: int) -> None:
    with pytest.raises(ValueError, match=rf"exit_layer must be in 1\.\.3 for a model of 4 layers, got {exit_layer}"):
        LayerPlan.early_exit(exit_layer, 4)


@pytest.mark.parametrize(("attention", "mlp", "bad"), [([4], [], 4), ([], [-1], -1), ([0, 7], [5], 5)])
def test_a_skip_index_outside_the_model_is_refused_with_the_range(attention, mlp, bad) -> None:
    with pytest.raises(ValueError, match=rf"must be in 0\.\.3, got {bad}"):
        LayerPlan.skip(4, attention, mlp)


@pytest.mark.parametrize(
    ("attention", "mlp"),
    [({0, 2, 3}, {2, 3}), ({2, 3}, {1, 2, 3}), ({3}, {3}), ({2, 4}, {2, 4}), (set(), set()), ({2, 3}, set())],
)
def test_only_a_pure_early_exit_may_call_itself_one(attention: set[int], mlp: set[int]) -> None:
    with pytest.raises(ValueError, match="exit_layer 2 must leave out all layers from there on"):
        LayerPlan(frozenset(attention), frozenset(mlp), 2)


def test_equal_plans_share_a_forward() -> None:
    assert (
        len({LayerPlan.skip(4, [1]), LayerPlan.skip(4, (1,)), LayerPlan.early_exit(2, 4), LayerPlan.early_exit(2, 4)})
        == 2
    )
