"""The grid of shapes, those of equal parameters, and what a shape holds."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from forerun.design.shapes import by_layer, distinct, equal_shapes, grid, size_of
from forerun.models.files.draft_shape import DraftShape, spread_layers
from forerun.models.packed.limits import head_dim_of
from forerun.testing import tiny_model

SMOLLM2 = AutoConfig.for_model(
    "llama",
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
    tie_word_embeddings=True,
)


@pytest.fixture(scope="module")
def tiny() -> Any:
    return tiny_model("llama").config


def test_the_grid_has_depths_by_widths_by_vocabularies_below_the_target() -> None:
    shapes = list(grid(SMOLLM2, cut=True))
    assert {one.layers for one in shapes} == {1, 2, 3, 4, 6, 8, 12, 16, 24}
    assert {one.width for one in shapes} == {576, 448, 288}
    assert {one.mlp for one in shapes} == {1536, 1152, 768}
    assert {one.vocabulary for one in shapes} == {49152, 8192}
    assert len(shapes) == len(set(shapes)) == 9 * 3 * 2


def test_every_shape_of_the_grid_can_be_begun_and_held_in_4_bits() -> None:
    for shape in [*grid(SMOLLM2, cut=True), *equal_shapes(SMOLLM2, 8192)]:
        shape.check(SMOLLM2)
        assert shape.width % 32 == shape.mlp % 32 == (shape.heads * 64) % 32 == 0


def test_a_head_that_cant_be_cut_stays_whole() -> None:
    assert {one.vocabulary for one in grid(SMOLLM2, cut=False)} == {49152}


def test_a_small_vocabulary_is_not_cut(tiny: Any) -> None:
    shapes = list(grid(tiny, cut=True))
    assert {one.vocabulary for one in shapes} == {97}
    assert {one.layers for one in shapes} == {1, 2, 3}
    assert {one.width for one in shapes} == {32, 24, 16}


def test_equal_shapes_go_from_deep_and_narrow_to_shallow_and_wide() -> None:
    shapes = equal_shapes(SMOLLM2, 8192)
    assert len(shapes) >= 3
    assert [one.layers for one in shapes] == sorted((one.layers for one in shapes), reverse=True)
    assert [one.width for one in shapes] == sorted(one.width for one in shapes)
    assert shapes[-1].width == 576
    reads = [size_of(one, SMOLLM2, "int4").read for one in shapes]
    assert max(reads) <= 1.3 * min(reads)


def test_no_equal_shape_is_deeper_than_the_target(tiny: Any) -> None:
    assert all(one.layers <= 4 for one in equal_shapes(tiny, 97))


def test_a_size_counts_the_parameters_of_the_model_it_would_be(tiny: Any) -> None:
    shape = DraftShape.parse("layers=2,width=16,mlp=24,heads=2,vocabulary=50", tiny)
    model = AutoModelForCausalLM.from_config(shape.config(tiny, spread_layers(2, 4)))
    size = size_of(shape, tiny, "float32")
    matrices = sum(one.numel() for one in model.parameters() if one.ndim == 2)
    assert size.whole == matrices
    assert size.megabytes == pytest.approx(4 * matrices / 1e6)
    assert size.read == size.layers + 50 * 16


def test_a_tied_head_is_held_once() -> None:
    shape = DraftShape.of(SMOLLM2)
    assert size_of(shape, SMOLLM2, "bf16").whole == shape.layer_parameters(64) + 49152 * 576


@pytest.mark.parametrize(
    ("weights", "layer", "table"), [("bfloat16", 2, 2), ("bf16", 2, 2), ("int8", 1, 1), ("int4", 0.625, 1)]
)
def test_megabytes_are_those_of_the_format(weights: str, layer: float, table: float) -> None:
    size = size_of(DraftShape.of(SMOLLM2), SMOLLM2, weights)
    assert size.megabytes == pytest.approx((layer * size.layers + table * (size.whole - size.layers)) / 1e6)


def test_heads_are_as_wide_as_said_or_a_share_of_the_width(tiny: Any) -> None:
    assert head_dim_of(SMOLLM2) == 64
    assert head_dim_of(tiny_model("gpt2").config) == 8


def test_shapes_of_one_kind_of_layer_share_the_deepest(tiny: Any) -> None:
    texts = ("layers=1", "layers=3,vocabulary=50", "layers=2,width=16")
    shapes = [DraftShape.parse(text, tiny) for text in texts]
    assert by_layer(shapes) == {DraftShape.parse("layers=3", tiny): shapes[:2], shapes[2]: shapes[2:]}


def test_a_shape_that_comes_up_twice_is_one(tiny: Any) -> None:
    one, other = DraftShape.parse("layers=1", tiny), DraftShape.parse("layers=2", tiny)
    assert distinct([one, other, one]) == [one, other]
