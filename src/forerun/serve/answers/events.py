"""Server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from ..refusal import Refusal

DONE = b"data: [DONE]\n\n"


def encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + encoded(value) + b"\n\n"


async def events(chunks: AsyncIterator[Mapping[str, Any]]) -> AsyncGenerator[bytes]:
    """Chunks as events, and the end. A refusal after the first chunk is an event of its own."""
    begun = False
    try:
        async for chunk in chunks:
            begun = True
            yield event(chunk)
    except Refusal as refusal:
        if not begun:
            raise
        yield event(refusal.body)
    yield DONE
