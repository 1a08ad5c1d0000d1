"""The types of prompts: each form that they allow is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from forerun import Message, Prompt, Prompts
from forerun.engine.prompts.forms import encode, is_many, split
from forerun.engine.prompts.prompt import SinglePrompt

ROW, BATCH = [1, 2, 3], [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("alias", [Prompt, Prompts, Message, SinglePrompt])
def test_an_alias_may_be_part_of_an_annotation_that_is_evaluated(alias: Any) -> None:
    assert alias | None
    assert dict[str, alias]


@pytest.mark.parametrize("form", [ROW, tuple(ROW), range(1, 4)])
def test_a_single_prompt_of_ids_is_one(form: Any) -> None:
    assert not is_many(form)
    assert encode(form, None) == ROW


@pytest.mark.parametrize("make", [torch.tensor, np.array, lambda ids: {"input_ids": ids}])
def test_rows_of_ids_may_be_one_prompt_or_several(make: Any) -> None:
    assert encode(make(ROW), None) == ROW
    assert is_many(make(BATCH))
    assert [encode(row, None) for row in split(make(BATCH))] == BATCH


@pytest.mark.parametrize("make", [list, torch.tensor, np.array, lambda ids: BatchEncoding({"input_ids": ids})])
def test_several_prompts_may_be_of_each_form(make: Any) -> None:
    prompts = [make(row) for row in BATCH]

    assert is_many(prompts)
    assert [encode(row, None) for row in split(prompts)] == BATCH


def test_texts_and_chats_may_be_several() -> None:
    message: Message = {"role": "user", "content": "Hi"}

    assert not is_many("text")
    assert not is_many([message])
    assert is_many(["text", [message]])
