"""From messages to token ids, through the model's chat template."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ...engine.engine import Engine
from ...engine.prompts.chat import encode_messages
from ...engine.tool_calls.history import with_arguments_read
from ..refusal import invalid
from .chat import ChatRequest
from .tools import chosen_tools


def chat_ids(chat: ChatRequest, tokenizer: Any) -> list[int]:
    """Raises Refusal or ValueError where the template refuses the messages."""
    if tokenizer is None:
        raise invalid("this model has no tokenizer; it takes token ids, at /v1/completions", "messages")
    messages = with_arguments_read([message.shown for message in chat.messages])
    tools = chosen_tools(chat)
    offered = {} if tools is None else {"tools": list(tools.definitions)}
    return encode_messages(messages, tokenizer, {**template_options(chat, tokenizer), **offered})


def template_options(chat: ChatRequest, tokenizer: Any) -> dict[str, Any]:
    """What the template is given beside the messages. Names that tokenising reads itself are refused."""
    given = chat.chat_template_kwargs or {}
    own = set(inspect.signature(tokenizer.apply_chat_template).parameters)
    if taken := sorted(own.intersection(given)):
        raise invalid(
            f"chat_template_kwargs can't set {taken[0]!r}, which is no variable of a template", "chat_template_kwargs"
        )
    going_on = bool(chat.continue_final_message)
    begins = not going_on if chat.add_generation_prompt is None else chat.add_generation_prompt
    if going_on and begins:
        raise invalid(
            "continue_final_message goes on with a message, so add_generation_prompt must be false",
            "add_generation_prompt",
        )
    if going_on and chat.messages[-1].role != "assistant":
        raise invalid("continue_final_message needs a last message of the assistant's", "continue_final_message")
    return {**given, "add_generation_prompt": begins, "continue_final_message": going_on}


def completion_ids(prompts: Sequence[str | list[int]], engine: Engine) -> list[list[int]]:
    """Token ids of each prompt. Raises ValueError on an empty one, or a token that the model doesn't have."""
    return [engine.prompt_ids(prompt) for prompt in prompts]
