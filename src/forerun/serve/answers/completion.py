"""The answer of /v1/completions, whole and in chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from ..requests.completion import CompletionRequest
from .answering import Answering
from .drafts import DraftView
from .logprobs import TokenTexts, completion_logprobs


async def whole_completion(asked: CompletionRequest, answering: Answering, texts: TokenTexts) -> dict[str, Any]:
    choices: list[dict[str, Any]] = [{} for _ in answering.tickets]
    async for index, update in answering.updates():
        if (result := update.result) is not None:
            choices[index] = {
                "index": index,
                "text": result.text or "",
                "logprobs": None if result.logprobs is None else completion_logprobs(result.logprobs, texts),
                "finish_reason": result.finish_reason,
            }
    return {
        **_head(answering),
        "choices": choices,
        "usage": answering.tally.usage,
        "metrics": answering.tally.metrics,
    }


async def completion_chunks(
    asked: CompletionRequest, answering: Answering, texts: TokenTexts
) -> AsyncGenerator[dict[str, Any]]:
    """A chunk a round; the last one of a choice has the reason of its end; then the usage if asked for."""
    head = _head(answering)
    include_usage = asked.stream_options is not None and asked.stream_options.include_usage
    if include_usage:
        head["usage"] = None
    views = [DraftView(texts, answering.begun) for _ in answering.tickets]
    offsets = [0] * len(answering.tickets)
    async for index, update in answering.updates():
        result, text = update.result, update.text
        shown = {"forerun": views[index].of(update)} if asked.return_drafts and update.round else {}
        if not (text or shown or update.logprobs or result is not None):
            continue
        logprobs = None
        if update.logprobs:
            logprobs = completion_logprobs(update.logprobs, texts, offsets[index])
            offsets[index] = logprobs["text_offset"][-1] + len(logprobs["tokens"][-1])
        choice = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": None if result is None else result.finish_reason,
        }
        yield {**head, "choices": [choice], **shown}
    if include_usage:
        yield {**head, "choices": [], "usage": answering.tally.usage, "metrics": answering.tally.metrics}


def _head(answering: Answering) -> dict[str, Any]:
    return {"id": answering.id, "object": "text_completion", "created": answering.created, "model": answering.model}
