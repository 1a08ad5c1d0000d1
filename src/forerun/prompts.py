"""What may be handed in as a prompt: text, chat messages, token ids, or a list of any of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .errors import UnsupportedOption

Message = Mapping[str, Any]
Prompt = str | Sequence[Message] | Sequence[int] | Tensor


def is_many(prompt: Any) -> bool:
    """Whether this is a list of prompts. Raises ValueError on an empty list."""
    if isinstance(prompt, str):
        return False
    if isinstance(prompt, Tensor):
        return prompt.ndim > 1
    if not isinstance(prompt, Sequence):
        raise ValueError(f"a prompt is text, messages, token ids or a list of these, got {type(prompt).__name__}")
    if len(prompt) == 0:
        raise ValueError("the prompt is empty; give at least one token")
    return not isinstance(prompt[0], int | Mapping)


def encode(prompt: Any, tokenizer: Any | None) -> list[int]:
    """Token ids of one prompt; messages go through the tokenizer's chat template.

    Raises ValueError on an empty prompt, UnsupportedOption where a tokenizer or a chat template is missing.
    """
    if isinstance(prompt, Tensor):
        ids = [int(token) for token in prompt.tolist()]
    elif isinstance(prompt, str):
        ids = _need(tokenizer, "a text prompt")(prompt).input_ids
    elif len(prompt) and isinstance(prompt[0], Mapping):
        ids = _from_messages(prompt, _need(tokenizer, "messages"))
    else:
        ids = [int(token) for token in prompt]
    if not ids:
        raise ValueError("the prompt is empty; give at least one token")
    return list(ids)


def _from_messages(messages: Sequence[Message], tokenizer: Any) -> list[int]:
    if not getattr(tokenizer, "chat_template", None):
        raise UnsupportedOption("this tokenizer has no chat template; hand in text instead of messages")
    encoded = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=True)
    ids: list[int] = encoded["input_ids"]
    return ids


def _need(tokenizer: Any | None, what: str) -> Any:
    if tokenizer is None:
        raise UnsupportedOption(f"{what} needs a tokenizer; load the model with one or hand in token ids")
    return tokenizer
