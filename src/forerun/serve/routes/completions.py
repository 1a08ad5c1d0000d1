"""POST /v1/chat/completions and /v1/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ..answers.answering import Answering
from ..answers.calls import TextWithCalls
from ..answers.chat import chat_chunks, whole_chat
from ..answers.completion import completion_chunks, whole_completion
from ..answers.deltas import PlainText
from ..answers.events import encoded, events
from ..answers.response import EVENTS, JSON, Produced
from ..requests.chat import ChatRequest
from ..requests.check import check_chat, check_fields
from ..requests.completion import CompletionRequest
from ..requests.prompts import chat_ids, completion_ids
from ..requests.read import read
from ..requests.tools import offer_of
from ..service import Service


def router(service: Service) -> APIRouter:
    made = APIRouter()
    most_bytes = service.settings.most_bytes

    @made.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        chat = await read(request, ChatRequest, most_bytes)
        check_chat(chat)
        offer = offer_of(chat, service.tokenizer)
        marks = () if offer is None else offer.marks
        answering = await service.ask(chat, lambda: [chat_ids(chat, service.tokenizer)], 1, "chatcmpl", marks)
        deltas = PlainText if offer is None else partial(TextWithCalls, offer)
        if chat.stream:
            return _streamed(service, answering, chat_chunks(chat, answering, service.texts, deltas))
        return _whole(service, answering, whole_chat(chat, answering, service.texts, deltas))

    @made.post("/v1/completions")
    async def completions(request: Request) -> Response:
        asked = await read(request, CompletionRequest, most_bytes)
        check_fields(asked)
        prompts = asked.prompts
        answering = await service.ask(asked, partial(completion_ids, prompts, service.engine), len(prompts), "cmpl")
        if asked.stream:
            return _streamed(service, answering, completion_chunks(asked, answering, service.texts))
        return _whole(service, answering, whole_completion(asked, answering, service.texts))

    return made


def _streamed(service: Service, answering: Answering, chunks: AsyncGenerator[dict[str, Any]]) -> Response:
    return Produced(events(chunks), EVENTS, partial(service.leave, answering))


def _whole(service: Service, answering: Answering, made: Coroutine[Any, Any, Mapping[str, Any]]) -> Response:
    return Produced(_one(made), JSON, partial(service.leave, answering))


async def _one(made: Coroutine[Any, Any, Mapping[str, Any]]) -> AsyncGenerator[bytes]:
    yield encoded(await made)
