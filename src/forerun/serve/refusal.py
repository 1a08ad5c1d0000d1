"""What a client is told when a request can't be answered: OpenAI's form, one clear sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

INVALID, SERVER = "invalid_request_error", "server_error"


@final
class Refusal(Exception):
    """An answer with this status and an error in its body. param: the field that is at fault; code: for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.kind = kind or (INVALID if status < 500 else SERVER)
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def invalid(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """A request that is no good."""
    return Refusal(400, message, param=param, code=code)


def of_value(error: ValueError, fields: Mapping[str, Any]) -> Refusal:
    """What the engine refused. Its sentences begin with the option that is at fault, which may be a field."""
    message = str(error)
    first = message.split(" ", 1)[0].partition("[")[0].strip("'\":;,")
    return invalid(message, first if first in fields else None)


def failed() -> Refusal:
    """A forward that raised; what it said stays in the log."""
    return Refusal(500, "the model failed at this request; other requests go on, and the server's log says where")


def shutting_down() -> Refusal:
    return Refusal(
        503, "the server is shutting down; try again later", code="shutting_down", headers={"Retry-After": "5"}
    )
