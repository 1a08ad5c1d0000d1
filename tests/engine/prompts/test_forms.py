"""What may be handed in as a prompt."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from forerun.engine.prompts.forms import encode, is_many, split
from forerun.errors import UnsupportedOption
from forerun.models.loading.padding import Padding
from forerun.testing import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
MESSAGES = [{"role": "user", "content": "hi"}]


PAD = 9


def held(ids: Any, mask: Any = None, **more: Any) -> BatchEncoding:
    """As a tokenizer gives it."""
    return BatchEncoding({"input_ids": ids, **({} if mask is None else {"attention_mask": mask}), **more})


@pytest.mark.parametrize(
    "prompt",
    [
        "text",
        np.str_("text"),
        [1, 2],
        range(2),
        MESSAGES,
        torch.tensor([1, 2]),
        np.array([1, 2]),
        [np.int64(1), 2],
        [torch.tensor(1), 2],
        held([1, 2]),
        held(torch.tensor([1, 2])),
    ],
)
def test_one_prompt_is_told_from_many(prompt: object) -> None:
    assert not is_many(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        ["a", "b"],
        [[1], [2, 3]],
        [MESSAGES],
        torch.tensor([[1, 2]]),
        ("a",),
        deque(["a"]),
        np.array(["a", "b"]),
        np.array([[1, 2]]),
        [torch.tensor([1]), [2]],
        [held([1])],
        held([[1], [2, 3]]),
        held(torch.tensor([[1, 2]])),
    ],
)
def test_a_list_of_any_kind_is_many(prompt: object) -> None:
    assert is_many(prompt)


@pytest.mark.parametrize(
    "prompt",
    [[], (), torch.tensor([]), torch.zeros(2, 0), np.zeros((0, 3)), held([]), held([[]]), [[]], {"input_ids": [[]]}],
)
def test_an_empty_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(ValueError, match="the prompt is empty"):
        encode(split(prompt)[0] if is_many(prompt) else prompt, TOKENIZER)


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        (3, "a list of these, got int"),
        (3.0, "a list of these, got float"),
        (None, "a list of these, got NoneType"),
        ({1, 2}, "a list of these, got set"),
        ((token for token in (1, 2)), "a list of these, got generator"),
        (b"text", "a prompt is text and no bytes; decode it first"),
        (bytearray(b"text"), "a prompt is text and no bytearray; decode it first"),
        (torch.tensor(3), "token ids are one row [n] or a batch [B, n], got a shape of []"),
        (np.array(3), "token ids are one row [n] or a batch [B, n], got a shape of []"),
        (torch.zeros(1, 2, 3), "token ids are one row [n] or a batch [B, n], got a shape of [1, 2, 3]"),
        ({}, "a mapping must hold 'input_ids'"),
        (MESSAGES[0], "got 'role', 'content'; messages go into a list"),
        (held([1], special_tokens_mask=[0]), "leave 'special_tokens_mask' out"),
        (held([1], token_type_ids=[1]), "leave 'token_type_ids' out"),
        (held(b"text"), "a prompt is text and no bytes"),
    ],
)
def test_something_else_is_refused_by_its_type(prompt: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        is_many(prompt)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        encode(prompt, TOKENIZER)


def test_text_is_tokenized() -> None:
    assert encode("hi", TOKENIZER) == TOKENIZER("hi").input_ids


@pytest.mark.parametrize(
    "prompt",
    [
        [3, 1],
        torch.tensor([3, 1]),
        np.array([3, 1]),
        [np.int32(3), torch.tensor(1)],
        torch.tensor([[3, 1]]),
        np.array([[3, 1]]),
        held([3, 1], [1, 1]),
        held(torch.tensor([[3, 1]]), torch.ones(1, 2)),
        held([[3, 1]]),
        held([PAD, 3, 1], [0, 1, 1], token_type_ids=[0, 0, 0]),
        held(np.array([[PAD, 3, 1]]), token_type_ids=torch.zeros(1, 3)),
        {"input_ids": torch.tensor([[PAD, 3, 1]]), "attention_mask": None},
    ],
)
def test_ids_are_taken_out_of_what_holds_them(prompt: Any) -> None:
    assert encode(prompt, None, Padding(PAD)) == [3, 1]


def test_ids_in_a_flat_list_are_all_text() -> None:
    assert encode([PAD, 3], None, Padding(PAD)) == [PAD, 3]
    assert encode(torch.tensor([PAD, 3]), None, Padding(PAD)) == [PAD, 3]


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        ([1, 2.0], "token ids are whole numbers, got 2.0 at place 1"),
        ([1.0, 2], "token ids are whole numbers, got 1.0 at place 0"),
        ([True, 2], "token ids are whole numbers, got True at place 0"),
        ([1, "a"], "token ids are whole numbers, got 'a' at place 1"),
        ([1, [2]], "token ids are whole numbers, got [2] at place 1"),
        (torch.tensor([1.0]), "token ids are whole numbers, got 1.0 at place 0"),
        (np.array([True]), "token ids are whole numbers, got True at place 0"),
        ([*MESSAGES, "a"], 'message 1 must be a mapping with "role" and "content", got str'),
        ([["a"]], "a list of prompts is in the place of one prompt; give all prompts in one flat list"),
        (torch.tensor([[1], [2]]), "a batch of 2 prompts is in the place of one; give its rows one by one"),
        ("a\ud800", "the prompt holds '\\ud800' at place 1, half of a surrogate pair"),
        (held([1, 2], [1]), "the attention mask of row 0 has 1 places and its ids have 2"),
        (held([1, 2], 1), "an attention mask has the shape of its ids, got 1"),
    ],
)
def test_what_holds_no_prompt_is_told(prompt: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        encode(prompt, TOKENIZER)


@pytest.mark.parametrize(
    ("prompts", "rows"),
    [
        (torch.tensor([[PAD, 1], [2, 3]]), [[1], [2, 3]]),
        (np.array([[1, PAD], [2, 3]]), [[1], [2, 3]]),
        (held(torch.tensor([[PAD, 1], [2, 3]])), [[1], [2, 3]]),
        (held(torch.tensor([[PAD, 1], [2, 3]]), torch.tensor([[1, 1], [0, 1]])), [[PAD, 1], [3]]),
        (held([[1], [2, 3]], [[1], [1, 1]]), [[1], [2, 3]]),
        (held([torch.tensor([5, 1]), [2, 3]], [[0, 1], torch.ones(2)]), [[1], [2, 3]]),
        ([[PAD, 1], [3]], [[PAD, 1], [3]]),
        ([[PAD, 1], [PAD, 3]], [[PAD, 1], [PAD, 3]]),
        (["a", MESSAGES, [PAD]], ["a", MESSAGES, [PAD]]),
        (np.array(["a", "b"]), ["a", "b"]),
    ],
)
def test_a_batch_comes_apart(prompts: Any, rows: list[Any]) -> None:
    assert split(prompts, Padding(PAD)) == rows


@pytest.mark.parametrize("padding", [Padding(PAD), Padding(None, frozenset({PAD}))])
@pytest.mark.parametrize("prompts", [[[PAD, 1], [2, 3]], held([[2, 3], [1, PAD]])])
def test_lists_that_look_padded_are_refused(prompts: Any, padding: Padding) -> None:
    with pytest.raises(UnsupportedOption, match="token 9, which may be padding or text; pass the mask with the ids"):
        split(prompts, padding)


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        ([[1, 1]], "an attention mask of 1 rows for ids of 2"),
        ([1, 1], "an attention mask has the shape of its ids, got 1 in the place of a row"),
        (torch.ones(2, 3), "the attention mask of row 0 has 3 places and its ids have 2"),
        (torch.ones(2, 2, 2), "an attention mask holds 0 and 1, got [1.0, 1.0] in row 0"),
    ],
)
def test_a_mask_of_another_shape_is_refused(mask: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        split(held([[1, 2], [3, 4]], mask))


def test_any_mapping_may_hold_ids() -> None:
    class Given(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return {"input_ids": [3, 1]}[key]

        def __iter__(self) -> Any:
            return iter(("input_ids",))

        def __len__(self) -> int:
            return 1

    assert encode(Given(), None) == [3, 1]


def test_messages_go_through_the_chat_template() -> None:
    assert TOKENIZER.decode(encode(MESSAGES, TOKENIZER)) == "<user>hi<end><assistant>"


def test_empty_text_is_refused() -> None:
    with pytest.raises(ValueError, match="the prompt is empty"):
        encode("", TOKENIZER)


@pytest.mark.parametrize(("prompt", "what"), [("hi", "a text prompt"), (MESSAGES, "messages")])
def test_text_without_a_tokenizer_is_refused(prompt: object, what: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"{what} needs a tokenizer"):
        encode(prompt, None)


def test_messages_without_a_chat_template_are_refused() -> None:
    bare = tiny_tokenizer()
    bare.chat_template = None
    with pytest.raises(UnsupportedOption, match="no chat template"):
        encode(MESSAGES, bare)
