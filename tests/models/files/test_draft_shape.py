"""The shape of a draft model: read, written, checked, and turned into a configuration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from forerun.errors import UnsupportedOption
from forerun.models.files.draft_shape import DraftShape, keep_layers, spread_layers
from forerun.testing import tiny_model

OWN = DraftShape(layers=4, width=32, mlp=48, heads=4, kv_heads=2, vocabulary=97)


@pytest.fixture(scope="module")
def config() -> Any:
    return tiny_model("llama").config


def parameters(model: Any) -> int:
    return sum(one.numel() for name, one in model.named_parameters() if ".layers." in name and one.ndim == 2)


def test_a_models_own_shape_is_read_off_its_configuration(config: Any) -> None:
    assert DraftShape.of(config) == OWN


def test_a_model_without_an_inner_size_or_grouped_keys_has_the_usual_ones() -> None:
    shape = DraftShape.of(AutoConfig.for_model("gpt2", n_embd=32, n_head=4))
    assert shape.mlp == 4 * shape.width == 128
    assert shape.kv_heads == shape.heads == 4


def test_what_is_not_named_is_the_targets(config: Any) -> None:
    assert DraftShape.parse("layers=2, width=16", config) == DraftShape(2, 16, 48, 4, 2, 97)
    assert DraftShape.parse("", config) == OWN


def test_key_heads_follow_the_heads_unless_they_are_named(config: Any) -> None:
    assert DraftShape.parse("heads=2", config).kv_heads == 1
    assert DraftShape.parse("heads=2,kv_heads=2", config).kv_heads == 2


def test_a_name_is_read_back_as_the_same_shape(config: Any) -> None:
    shape = DraftShape(3, 24, 36, 2, 1, 50)
    assert DraftShape.parse(shape.name, config) == shape


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("depth=2", "unknown part 'depth' of a shape; known: layers, width, mlp, heads, kv_heads, vocabulary"),
        ("layers", "layers of a shape must be a whole number from 1 on, got ''"),
        ("layers=two", "layers of a shape must be a whole number from 1 on, got 'two'"),
        ("width=-8", "width of a shape must be a whole number from 1 on, got '-8'"),
    ],
)
def test_a_text_that_is_no_shape_is_refused(config: Any, text: str, sentence: str) -> None:
    with pytest.raises(UnsupportedOption, match=sentence):
        DraftShape.parse(text, config)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("layers=5", "a draft's layers must be in 1..4, for it begins with the target's weights; got 5"),
        ("layers=0", "a draft's layers must be in 1..4"),
        ("width=64", "a draft's width must be in 1..32"),
        ("vocabulary=98", "a draft's vocabulary must be in 1..97"),
        ("heads=2,kv_heads=2", "must keep the target's 2 queries for each key, got 2 heads and 2 kv_heads"),
    ],
)
def test_a_shape_that_the_target_cant_begin_is_refused(config: Any, text: str, sentence: str) -> None:
    with pytest.raises(UnsupportedOption, match=sentence):
        DraftShape.parse(text, config).check(config)


def test_shapes_up_to_the_targets_own_can_be_begun(config: Any) -> None:
    OWN.check(config)
    DraftShape(1, 8, 8, 2, 1, 1).check(config)


def test_its_configuration_makes_a_model_of_that_shape(config: Any) -> None:
    shape = DraftShape.parse("layers=2,width=16,mlp=24,heads=2", config)
    model = AutoModelForCausalLM.from_config(shape.config(config, (0, 3)))
    assert DraftShape.of(model.config) == shape
    assert model.config.head_dim == config.head_dim
    assert parameters(model) == shape.layer_parameters(config.head_dim)
    assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 97)


def test_the_targets_configuration_stays_as_it_is(config: Any) -> None:
    before = config.to_dict()
    OWN.config(config, (0,))
    assert config.to_dict() == before


def test_heads_keep_their_width_where_the_target_says_none() -> None:
    config = AutoConfig.for_model("qwen2", hidden_size=32, num_attention_heads=4, num_key_value_heads=2)
    narrow = DraftShape.parse("layers=4,width=16", config).config(config, range(4))
    assert narrow.head_dim == 8


def test_lists_with_an_entry_for_each_layer_are_cut_with_them() -> None:
    config = tiny_model("olmo3").config
    keep_layers(config, (0, 3))
    assert config.num_hidden_layers == 2
    assert config.layer_types == ["sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    ("count", "total", "expected"),
    [(1, 30, (29,)), (2, 30, (0, 29)), (4, 10, (0, 3, 6, 9)), (3, 3, (0, 1, 2))],
)
def test_chosen_layers_are_spread_from_the_first_to_the_last(count: int, total: int, expected: tuple[int, ...]) -> None:
    assert spread_layers(count, total) == expected
