"""A response that is made while the client waits, and given up as soon as the client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import final

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ..refusal import Refusal

EVENTS, JSON = "text/event-stream", "application/json"
# proxies that gather a stream's pieces are told not to
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def refused(refusal: Refusal) -> JSONResponse:
    return JSONResponse(refusal.body, refusal.status, refusal.headers)


@final
class Produced(Response):
    """parts: the body's. A Refusal before the first part is the response. gone: called once, whatever happened."""

    def __init__(self, parts: AsyncGenerator[bytes], media_type: str, gone: Callable[[], None]) -> None:
        super().__init__(media_type=media_type, headers=HEADERS if media_type == EVENTS else None)
        del self.headers["content-length"]  # it isn't known
        self._parts = parts
        self._gone = gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(scope, receive, send))
        leaving = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._gone()
            leaving.cancel()
            if not sending.done():
                sending.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._parts.aclose()
        if not sending.cancelled() and (error := sending.exception()) is not None and not isinstance(error, OSError):
            raise error

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        try:
            async for part in self._parts:
                if not begun:
                    begun = True
                    if self.media_type == JSON:  # it comes in one part
                        self.headers["content-length"] = str(len(part))
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except Refusal as refusal:
            if begun:
                raise
            await refused(refusal)(scope, receive, send)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
