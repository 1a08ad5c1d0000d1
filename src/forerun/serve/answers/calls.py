"""The text of an answer that may call functions, as a chat's message has it."""

from __future__ import annotations

from typing import Any, final

from ...engine.tool_calls.events import Arguments, CallBegun, CallBroken, Event, Text, ToolCall, assembled
from ...engine.tool_calls.stream import CallStream
from ..requests.tools import Offer
from .deltas import Delta, Deltas


@final
class TextWithCalls(Deltas):
    """Where calls may not be parallel, those after the first whole one are left out."""

    def __init__(self, offer: Offer) -> None:
        self._stream = CallStream(offer.form, offer.tools.names)
        self._parallel = offer.parallel
        self._events: list[Event] = []
        self._shown: set[int] = set()  # the calls that a client sees

    def push(self, text: str) -> list[Delta]:
        return self._deltas(self._stream.push(text))

    def end(self) -> list[Delta]:
        return self._deltas(self._stream.finish())

    def message(self) -> dict[str, Any]:
        text, calls = self._assembled()
        message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text, "refusal": None}
        if calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
        return message

    def finish_reason(self, reason: str) -> str:
        return "tool_calls" if reason == "stop" and self._assembled()[1] else reason

    def _assembled(self) -> tuple[str, tuple[ToolCall, ...]]:
        text, calls = assembled(self._events)
        return text, calls if self._parallel else calls[:1]

    def _deltas(self, events: list[Event]) -> list[Delta]:
        self._events += events
        found = (self._delta(event) for event in events)
        return [delta for delta in found if delta is not None]

    def _delta(self, event: Event) -> Delta | None:
        match event:
            case Text(text):
                return {"content": text}
            case CallBegun(index, id, name) if self._parallel or not self._shown:
                self._shown.add(index)
                function = {"name": name, "arguments": ""}
                return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}
            case Arguments(index, text) if index in self._shown:
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
            case CallBroken(index):
                self._shown.discard(index)
        return None
