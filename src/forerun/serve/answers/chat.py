"""The answer of /v1/chat/completions, whole and in chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from ..requests.chat import ChatRequest
from .answering import Answering
from .deltas import Deltas
from .drafts import DraftView
from .logprobs import TokenTexts, chat_logprobs

Made = Callable[[], Deltas]


async def whole_chat(chat: ChatRequest, answering: Answering, texts: TokenTexts, deltas: Made) -> dict[str, Any]:
    choices: list[dict[str, Any]] = [{} for _ in answering.tickets]
    parts = [deltas() for _ in answering.tickets]
    async for index, update in answering.updates():
        parts[index].push(update.text)
        if (result := update.result) is not None:
            parts[index].end()
            choices[index] = {
                "index": index,
                "message": parts[index].message(),
                "logprobs": None if result.logprobs is None else chat_logprobs(result.logprobs, texts),
                "finish_reason": parts[index].finish_reason(result.finish_reason),
            }
    return {
        **_head(answering, "chat.completion"),
        "choices": choices,
        "usage": answering.tally.usage,
        "metrics": answering.tally.metrics,
    }


async def chat_chunks(
    chat: ChatRequest, answering: Answering, texts: TokenTexts, deltas: Made
) -> AsyncGenerator[dict[str, Any]]:
    """A chunk with the role for each choice, one a round, one with the reason of its end, and the usage if asked for."""
    head = _head(answering, "chat.completion.chunk")
    include_usage = chat.stream_options is not None and chat.stream_options.include_usage
    if include_usage:
        head["usage"] = None
    parts = [deltas() for _ in answering.tickets]
    views = [DraftView(texts, answering.begun) for _ in answering.tickets]
    met: set[int] = set()

    def chunk(index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        return {**head, "choices": [choice]}

    async for index, update in answering.updates():
        if index not in met:
            met.add(index)
            yield chunk(index, {"role": "assistant", "content": ""})
        made = parts[index].push(update.text)
        if update.result is not None:
            made += parts[index].end()
        more = {"logprobs": chat_logprobs(update.logprobs, texts)} if update.logprobs else {}
        shown = {"forerun": views[index].of(update)} if chat.return_drafts and update.round else {}
        if (more or shown) and not made:
            made = [{"content": ""}]
        for delta in made:
            yield {**chunk(index, delta, **more), **shown}
            more, shown = {}, {}
        if (result := update.result) is not None:
            yield chunk(index, {}, finish_reason=parts[index].finish_reason(result.finish_reason))
    if include_usage:
        yield {**head, "choices": [], "usage": answering.tally.usage, "metrics": answering.tally.metrics}


def _head(answering: Answering, kind: str) -> dict[str, Any]:
    return {"id": answering.id, "object": kind, "created": answering.created, "model": answering.model}
