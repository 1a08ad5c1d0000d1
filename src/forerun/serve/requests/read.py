"""From the bytes of a body to its fields; what is wrong is told by the field's name."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from ..refusal import Refusal, invalid
from .fields import Body

B = TypeVar("B", bound=Body)

JSON = "application/json"


async def read(request: Request, kind: type[B], most_bytes: int) -> B:
    """The body as this kind. Raises Refusal where it is too long, no JSON, or has a field that is no good.

    Only JSON by name is read: a page of another site can't send that without asking, which is refused.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != JSON:
        raise Refusal(
            415, f"the body must be {JSON}, got {given[:60] or 'no content-type'!r}", code="unsupported_media_type"
        )
    return parsed(kind, await limited_body(request, most_bytes))


async def limited_body(request: Request, most_bytes: int) -> bytes:
    """The body, read no further than the limit."""
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > most_bytes:
        raise too_large(most_bytes)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise too_large(most_bytes)
        parts.append(part)
    return b"".join(parts)


def too_large(most_bytes: int) -> Refusal:
    return Refusal(413, f"the body has more than {most_bytes} bytes, the most that this server takes", code="too_large")


def parsed(kind: type[B], body: bytes) -> B:
    """Raises Refusal with the field's name."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise refusal_of(error) from None


def refusal_of(error: ValidationError) -> Refusal:
    """The first thing that is wrong, of a union the alternative that came furthest."""
    first = max(
        error.errors(include_url=False, include_context=False, include_input=False), key=lambda one: len(one["loc"])
    )
    place = ".".join(str(part) for part in first["loc"] if not _is_alternative(str(part)))[:200]
    if first["type"] == "json_invalid":
        return invalid(f"the body is no JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
    if first["type"] == "extra_forbidden":
        return invalid(f"{place!r} is not supported", place, "unsupported_field")
    if first["type"] == "missing":
        return invalid(f"{place!r} is missing", place)
    return invalid(f"{place}: {first['msg']}", place or None)


def _is_alternative(part: str) -> bool:
    """Whether this part of a place is pydantic's name of a union's member and no field."""
    return "[" in part or part in ("str", "int", "constrained-str")
