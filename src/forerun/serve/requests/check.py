"""Fields that fit each other, and fields that this server can't honour."""

from __future__ import annotations

from ..refusal import invalid
from .chat import ChatRequest
from .fields import GenerationFields


def check_fields(fields: GenerationFields) -> None:
    if fields.stream_options is not None and not fields.stream:
        raise invalid("stream_options needs stream to be true", "stream_options")
    if fields.return_drafts and not fields.stream:
        raise invalid("return_drafts needs stream to be true", "return_drafts")
    if fields.stop is not None and "" in ([fields.stop] if isinstance(fields.stop, str) else fields.stop):
        raise invalid("stop holds an empty text, which ends nothing; leave it out", "stop")


def check_chat(chat: ChatRequest) -> None:
    check_fields(chat)
    if chat.top_logprobs is not None and not chat.logprobs:
        raise invalid("top_logprobs needs logprobs to be true", "top_logprobs")
    if chat.max_tokens not in (None, chat.max_completion_tokens) and chat.max_completion_tokens is not None:
        raise invalid(
            f"max_tokens is {chat.max_tokens} and max_completion_tokens {chat.max_completion_tokens}; give one",
            "max_tokens",
        )
    form = chat.response_format
    if form is not None and form.type != "json_schema" and form.json_schema is not None:
        raise invalid(
            f"response_format of type {form.type} takes no json_schema; for one the type is json_schema",
            "response_format.json_schema",
        )
