"""How calls are written in each form: readers of what follows the opening, one character at a time."""

from __future__ import annotations

from typing import Protocol

from .characters import Characters, Malformed, Reading, read_object, read_string, read_value

PYTHON_TAG = "<|python_tag|>"
CALL_ID, ARGS = "[CALL_ID]", "[ARGS]"
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


class Sink(Protocol):
    """Where the parts of a call go. It raises Malformed on a part that can't be one."""

    def name(self, name: str) -> None:
        """The name of the call."""

    def open_arguments(self) -> None:
        """The arguments begin; their characters follow."""

    def argument(self, char: str) -> None:
        """A character of the arguments."""

    def end(self) -> None:
        """The call is whole."""


def tagged(chars: Characters, sink: Sink) -> Reading[None]:
    """Hermes and Qwen: an object up to </tool_call>."""
    yield from _call(chars, sink, (yield from chars.after_blanks()))
    if (yield from chars.after_blanks()) != "<":
        raise Malformed
    yield from chars.expect("/tool_call>")


def bare(chars: Characters, sink: Sink) -> Reading[None]:
    """Llama 3: nothing but objects, after a tag or none, with semicolons between them."""
    first = yield from chars.after_blanks()
    if first == PYTHON_TAG[0]:
        yield from chars.expect(PYTHON_TAG[1:])
        first = yield from chars.after_blanks()
    while True:
        yield from _call(chars, sink, first)
        if (yield from chars.after_blanks()) != ";":
            raise Malformed
        first = yield from chars.after_blanks()


def listed_or_named(chars: Characters, sink: Sink) -> Reading[None]:
    """Mistral: a list of objects, or in newer models a name and its arguments."""
    first = yield from chars.after_blanks()
    if first != "[":
        yield from _named(chars, sink, first)
        return
    while True:
        yield from _call(chars, sink, (yield from chars.after_blanks()))
        char = yield from chars.after_blanks()
        if char == "]":
            return
        if char != ",":
            raise Malformed


def _call(chars: Characters, sink: Sink, first: str) -> Reading[None]:
    """An object with a name and arguments."""

    def member(key: str, value: str) -> Reading[None]:
        if key == "name":
            if value != '"':
                raise Malformed
            sink.name((yield from read_string(chars)))
        elif key in ("arguments", "parameters"):
            yield from _arguments(chars, sink, value)
        else:
            yield from read_value(chars, value)

    if first != "{":
        raise Malformed
    yield from read_object(chars, member)
    sink.end()


def _arguments(chars: Characters, sink: Sink, first: str) -> Reading[None]:
    if first != "{":
        raise Malformed
    sink.open_arguments()
    sink.argument(first)
    chars.heard = sink.argument
    try:
        yield from read_value(chars, first)
    finally:
        chars.heard = None


def _named(chars: Characters, sink: Sink, first: str) -> Reading[None]:
    """A name, perhaps an id and a mark, and an object."""
    name, char = "", first
    while char in NAME_CHARACTERS:
        name += char
        char = yield from chars.take()
    sink.name(name)
    if char == "[":
        char = yield from chars.take()
        if char == CALL_ID[1]:
            yield from chars.expect(CALL_ID[2:])
            while (yield from chars.take()) != "[":
                pass
            char = yield from chars.take()
        if char != ARGS[1]:
            raise Malformed
        yield from chars.expect(ARGS[2:])
        char = yield from chars.take()
    if char != "{":
        char = char if char not in " \t\r\n" else (yield from chars.after_blanks())
    yield from _arguments(chars, sink, char)
    sink.end()
