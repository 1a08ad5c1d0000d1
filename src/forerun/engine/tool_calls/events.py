"""What a text with tool calls is made of, piece by piece, and what the pieces come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Text that belongs to no call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call whose arguments begin now."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of a call's arguments, as the model wrote them."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call that is whole: its arguments are a JSON object."""

    index: int


@dataclass(frozen=True, slots=True)
class CallBroken:
    """A call that had begun and turned out malformed or cut off: it is void, and all of it follows as text."""

    index: int


Event = Text | CallBegun | Arguments | CallEnded | CallBroken


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function; arguments is the text of a JSON object."""

    id: str
    name: str
    arguments: str


def assembled(events: Iterable[Event]) -> tuple[str, tuple[ToolCall, ...]]:
    """The text beside the calls, and the calls that are whole."""
    texts: list[str] = []
    begun: dict[int, CallBegun] = {}
    pieces: dict[int, list[str]] = {}
    calls: list[ToolCall] = []
    for event in events:
        match event:
            case Text(text):
                texts.append(text)
            case CallBegun(index):
                begun[index], pieces[index] = event, []
            case Arguments(index, text):
                pieces[index].append(text)
            case CallEnded(index):
                calls.append(ToolCall(begun[index].id, begun[index].name, "".join(pieces[index])))
            case CallBroken():
                pass
    return "".join(texts), tuple(calls)
