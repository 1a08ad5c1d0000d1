"""Earlier calls in a conversation, in the form that chat templates read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def with_arguments_read(messages: Sequence[Any]) -> list[Any]:
    """The messages, with the arguments of calls as objects: clients send them as text, and templates write them as JSON.

    Raises ValueError on calls that can't be read.
    """
    return [
        {**message, "tool_calls": [_read(call, f"messages[{place}].tool_calls[{n}]") for n, call in enumerate(calls)]}
        if isinstance(message, Mapping) and isinstance(calls := message.get("tool_calls"), list | tuple)
        else message
        for place, message in enumerate(messages)
    ]


def _read(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"{where} must hold a function with a name, got {ascii(call)[:60]}")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{where}.function.arguments is no JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise ValueError(f"{where}.function.arguments must be a JSON object, got {ascii(arguments)[:60]}")
    return {**call, "function": {**function, "arguments": arguments}}
