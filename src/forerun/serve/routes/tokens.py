"""POST /tokenize and /detokenize, as vLLM and llama-server have them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from ..refusal import invalid, of_value
from ..requests.chat import ChatRequest, Message
from ..requests.fields import Body, Text, Token
from ..requests.prompts import chat_ids
from ..requests.read import read
from ..service import Service


class TokenizeRequest(Body):
    """A text (prompt, or content as llama-server calls it) or messages."""

    model: Text | None = None
    prompt: str | None = None
    content: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(Body):
    model: Text | None = None
    tokens: list[Token]


def router(service: Service) -> APIRouter:
    made = APIRouter()

    @made.post("/tokenize")
    async def tokenize(request: Request) -> dict[str, Any]:
        asked = await read(request, TokenizeRequest, service.settings.most_bytes)
        service.check_model(asked.model)
        tokens = await service.aside(partial(_tokens, asked, service))
        return {"tokens": tokens, "count": len(tokens), "max_model_len": service.engine.runner.max_length}

    @made.post("/detokenize")
    async def detokenize(request: Request) -> dict[str, Any]:
        asked = await read(request, DetokenizeRequest, service.settings.most_bytes)
        service.check_model(asked.model)
        text = await service.aside(partial(_text, asked, service))
        return {"prompt": text, "content": text}

    return made


def _tokens(asked: TokenizeRequest, service: Service) -> list[int]:
    given = [name for name in ("prompt", "content", "messages") if getattr(asked, name) is not None]
    if len(given) != 1:
        raise invalid("give one of prompt, content and messages", given[1] if given else "prompt")
    if service.tokenizer is None:
        raise invalid("this model has no tokenizer", given[0])
    try:
        if asked.messages is not None:
            chat = ChatRequest(
                messages=asked.messages,
                add_generation_prompt=asked.add_generation_prompt,
                chat_template_kwargs=asked.chat_template_kwargs,
            )
            return chat_ids(chat, service.tokenizer)
        special = True if asked.add_special_tokens is None else asked.add_special_tokens
        ids: list[int] = service.tokenizer(asked.prompt or asked.content or "", add_special_tokens=special).input_ids
        return list(ids)
    except ValueError as error:
        raise of_value(error, TokenizeRequest.model_fields) from error


def _text(asked: DetokenizeRequest, service: Service) -> str:
    size = service.engine.runner.vocab_size
    if bad := [token for token in asked.tokens if token >= size]:
        raise invalid(f"tokens must be in 0..{size - 1}, got {bad[0]}", "tokens")
    if service.tokenizer is None:
        raise invalid("this model has no tokenizer", "tokens")
    text: str = service.tokenizer.decode(asked.tokens)
    return text
