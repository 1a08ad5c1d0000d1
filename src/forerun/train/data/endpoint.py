"""A server with OpenAI's API, asked for one answer at a time from as many threads as there shall be requests in flight."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, final
from urllib.parse import urlsplit

from ...errors import ForerunError, reason_of

WAITS = (1.0, 3.0, 10.0)  # seconds before a request that failed is sent again
SECONDS = 1800.0  # that an answer may take
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
UNKNOWN_FIELD = frozenset({400, 422})


class EndpointFailed(ForerunError):
    """The server can't be reached, or isn't what was expected."""


class Refused(ForerunError, ValueError):
    """The server refuses one request; the next one may fare better."""


@dataclass(frozen=True, slots=True)
class Reply:
    """ids: None where the server tells text alone."""

    text: str
    ids: list[int] | None
    finish_reason: str


@final
class Endpoint:
    """url: http(s)://HOST[:PORT][/v1]. key: sent as a bearer token, and never shown. waits: before each further try."""

    def __init__(self, url: str, key: str | None = None, waits: Sequence[float] = WAITS) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"an endpoint is an address like http://localhost:8000/v1, got {url!r}")
        path = parts.path.rstrip("/")
        self._host, self._secure = parts.netloc.rpartition("@")[2], parts.scheme == "https"
        self._path = path if path.endswith("/v1") else f"{path}/v1"
        self.url = f"{parts.scheme}://{self._host}{self._path}"
        self._key, self._waits = key, waits
        self._tells_ids = True  # until it refuses to be asked for them

    def model(self, wanted: str = "") -> str:
        """The name of the model that is served; of several, `wanted`."""
        data = self._sent("GET", "models", None).get("data")
        names = [str(one.get("id")) for one in data if isinstance(one, dict)] if isinstance(data, list) else []
        if wanted in names or (len(names) == 1 and not wanted):
            return wanted or names[0]
        told = f"serves {', '.join(names) or 'no model'}"
        raise EndpointFailed(f"{self.url} {told}" + (f", and not {wanted!r}" if wanted else "; name one"))

    def ask(self, prompt: str | Sequence[Mapping[str, str]], fields: Mapping[str, Any]) -> Reply:
        """The answer to messages or to plain text. Raises Refused, EndpointFailed."""
        chat = not isinstance(prompt, str)
        asked = {**fields, "messages" if chat else "prompt": prompt}
        route = "chat/completions" if chat else "completions"
        told = self._with_ids(route, asked) if self._tells_ids else self._sent("POST", route, asked)
        try:
            choice = told["choices"][0]
            text = (choice["message"]["content"] if chat else choice["text"]) or ""
            ids = choice.get("token_ids")
            return Reply(str(text), None if ids is None else [int(one) for one in ids], str(choice["finish_reason"]))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EndpointFailed(f"{self.url} gave no completion but {json.dumps(told)[:80]}") from error

    def _with_ids(self, route: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """vLLM tells an answer's token ids; a server that refuses the field isn't asked again."""
        try:
            return self._sent("POST", route, {**asked, "return_token_ids": True})
        except Refused:
            told = self._sent("POST", route, asked)
            self._tells_ids = False
            return told

    def _sent(self, method: str, route: str, asked: Mapping[str, Any] | None) -> dict[str, Any]:
        for wait in (*self._waits, None):
            try:
                status, body = self._once(method, f"{self._path}/{route}", asked)
            except (OSError, HTTPException) as error:
                reason = f"can't reach {self.url}: {reason_of(error)}"
            else:
                if status == 200:
                    return self._read(body)
                reason = f"{self.url} answered {status} {_message(body)}"
                if status not in BUSY:
                    raise Refused(reason) if status in UNKNOWN_FIELD else EndpointFailed(reason)
            if wait is not None:
                time.sleep(wait)
        raise EndpointFailed(reason)

    def _once(self, method: str, path: str, asked: Mapping[str, Any] | None) -> tuple[int, bytes]:
        connection = (HTTPSConnection if self._secure else HTTPConnection)(self._host, timeout=SECONDS)
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            connection.request(method, path, None if asked is None else json.dumps(asked).encode(), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            told = json.loads(body)
        except ValueError as error:
            raise EndpointFailed(f"{self.url} answered with what is no JSON: {body[:60]!r}") from error
        if not isinstance(told, dict):
            raise EndpointFailed(f"{self.url} answered with {json.dumps(told)[:60]} and no object")
        return told


def _message(body: bytes) -> str:
    """What an error's body says, in one line."""
    try:
        told = json.loads(body)
        error = told.get("error", told.get("message", told.get("detail", "")))
        text = error.get("message", "") if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        text = body.decode(errors="replace")
    return f"({' '.join(text.split())[:200]})"
