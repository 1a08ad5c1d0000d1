"""Who may call: the API key and the host's name; and a line in the log for each request, without what it holds."""

from __future__ import annotations

import hmac
import logging
from time import perf_counter
from typing import final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .answers.response import refused
from .refusal import Refusal, failed
from .settings import Settings
from .worker.failure import log_failure

LOG = logging.getLogger("forerun.serve")
OPEN = frozenset({"/health"})  # for who watches the process


@final
class Guard:
    """Wraps the app. free: paths that need no key, those of the page's own files."""

    def __init__(self, app: ASGIApp, settings: Settings, free: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._key = None if settings.api_key is None else settings.api_key.encode()
        self._hosts = None if settings.hosts is None else frozenset(name.lower() for name in settings.hosts)
        self._free = OPEN | free

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        told = _Told(send)
        begun = perf_counter()
        try:
            await (self._app if refusal is None else refused(refusal))(scope, receive, told)
        except Exception as error:
            log_failure(LOG, error)
            if told.status is None:
                await refused(failed())(scope, receive, told)
        finally:
            # the path is the client's text as well: only that of a route is told
            route = getattr(scope.get("route"), "path", "?")
            LOG.info("%s %s %s %.0f ms", scope["method"], route, told.status, 1000 * (perf_counter() - begun))

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        if self._hosts is not None and _hostname(headers.get("host", "")) not in self._hosts:
            return Refusal(403, "this server isn't called by that name; see --allow-host", code="unknown_host")
        if self._key is None or scope["path"] in self._free or scope["method"] == "OPTIONS":
            return None
        kind, _, key = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(key.strip().encode(), self._key):
            return None
        return Refusal(
            401,
            "the API key is missing or wrong; send it as: Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )


@final
class _Told:
    """Passes messages on, and keeps the status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def _hostname(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[").lower()
    return host.partition(":")[0].lower()
