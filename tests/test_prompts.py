"""What may be handed in as a prompt."""

from __future__ import annotations

import pytest
import torch

from forerun.errors import UnsupportedOption
from forerun.prompts import encode, is_many
from forerun.testing import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("prompt", ["text", [1, 2], MESSAGES, torch.tensor([1, 2])])
def test_one_prompt_is_told_from_many(prompt: object) -> None:
    assert not is_many(prompt)


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2, 3]], [MESSAGES], torch.tensor([[1, 2]]), ("a",)])
def test_a_list_of_any_kind_is_many(prompt: object) -> None:
    assert is_many(prompt)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="the prompt is empty"):
        is_many([])


def test_something_else_is_refused_by_its_type() -> None:
    with pytest.raises(ValueError, match="got int"):
        is_many(3)


def test_text_is_tokenized() -> None:
    assert encode("hi", TOKENIZER) == TOKENIZER("hi").input_ids


def test_ids_and_tensors_are_taken_as_they_are() -> None:
    assert encode([3, 1], None) == [3, 1]
    assert encode(torch.tensor([3, 1]), None) == [3, 1]


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
