"""Which token pads is read off the generation config and the tokenizer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from forerun import load
from forerun.models.loading.padding import Padding, ids_in, padding_of
from forerun.testing import END, save_tiny, tiny_tokenizer


@pytest.mark.parametrize(
    ("config", "certain", "possible"),
    [
        ({"pad_token_id": 5, "eos_token_id": 6}, 5, set()),
        ({"pad_token_id": 5, "eos_token_id": [6, 7]}, 5, set()),
        ({"pad_token_id": 5}, 5, set()),
        ({"pad_token_id": 6, "eos_token_id": 6}, None, {6}),
        ({"pad_token_id": 7, "eos_token_id": [6, 7]}, None, {7}),
        ({"eos_token_id": [6, 7]}, None, {6}),
        ({}, None, set()),
    ],
)
def test_a_pad_token_that_ends_no_text_is_certain(
    config: dict[str, Any], certain: int | None, possible: set[int]
) -> None:
    padding = padding_of(GenerationConfig(**config), None)

    assert padding == Padding(certain, frozenset(possible))
    assert padding.ids == {*possible, certain} - {None}


def test_the_tokenizers_pad_token_is_possible_where_generate_doesnt_know_it() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = "<user>"

    assert padding_of(GenerationConfig(pad_token_id=5), tokenizer) == Padding(5, frozenset({END + 1}))
    assert padding_of(GenerationConfig(pad_token_id=END + 1), tokenizer) == Padding(END + 1)


def test_without_a_pad_token_people_fill_up_with_the_end_of_the_tokenizer() -> None:
    assert padding_of(GenerationConfig(), tiny_tokenizer()).possible == {END}


def test_a_model_without_a_generation_config_has_no_padding() -> None:
    assert padding_of(None, None) == Padding()


@pytest.mark.parametrize("runner", ["lean", "hf"])
def test_an_engine_knows_the_padding_of_a_checkpoint(tmp_path_factory: pytest.TempPathFactory, runner: str) -> None:
    path = save_tiny(tmp_path_factory.mktemp("padded"), pad_token_id=3)

    ids = [[3, 3, 40, 41], [42, 43, 44, 45]]
    engine = load(path, runner=runner)
    with pytest.raises(ValueError, match=r"row 0 of the batch begins with token 3, which may be padding or text"):
        engine.generate(ids, max_new_tokens=1)


@pytest.mark.parametrize(
    ("value", "ids"), [(None, []), (3, [3]), ([3, 4], [3, 4]), (torch.tensor([5]), [5]), ([None], [])]
)
def test_a_field_holds_one_id_or_several_or_none(value: object, ids: list[int]) -> None:
    assert ids_in(value) == ids
