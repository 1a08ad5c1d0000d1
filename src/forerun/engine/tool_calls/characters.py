"""JSON read one character at a time, by generators that are sent each character as it comes.

A generator ends with the last character of what it reads, and raises Malformed at the first one that doesn't fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from typing import Any, TypeVar, final

T = TypeVar("T")
Reading = Generator[None, str, T]
# how to read the value of a member of an object: its key, and the first character of the value
Member = Callable[[str, str], Reading[None]]

BLANKS = " \t\n\r"
DEEPEST = 64  # of generators within each other
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
WORDS = {"t": "rue", "f": "alse", "n": "ull"}
HEXADECIMAL = "0123456789abcdefABCDEF"


class Malformed(ValueError):
    """The text isn't what it began as."""


@final
class Characters:
    """A growing text. heard, where it is set, is told each new character."""

    def __init__(self) -> None:
        self.heard: Callable[[str], None] | None = None
        self._back = ""

    def take(self) -> Reading[str]:
        """The next character."""
        if self._back:
            char, self._back = self._back, ""
            return char
        char = yield
        if self.heard is not None:
            self.heard(char)
        return char

    def put_back(self, char: str) -> None:
        self._back = char

    def after_blanks(self) -> Reading[str]:
        """The next character that is no blank."""
        while (char := (yield from self.take())) in BLANKS:
            pass
        return char

    def expect(self, text: str) -> Reading[None]:
        for wanted in text:
            if (yield from self.take()) != wanted:
                raise Malformed


def read_value(chars: Characters, first: str, depth: int = 0) -> Reading[None]:
    """The rest of a value that begins with `first`."""
    if depth > DEEPEST:
        raise Malformed
    if first == '"':
        yield from read_string(chars)
    elif first == "{":
        yield from read_object(chars, lambda _, value: read_value(chars, value, depth + 1))
    elif first == "[":
        yield from _items(chars, depth)
    elif first in WORDS:
        yield from chars.expect(WORDS[first])
    else:
        yield from _number(chars, first)


def read_object(chars: Characters, member: Member) -> Reading[None]:
    """The rest of an object after its brace. Raises Malformed where a key comes twice."""
    keys: set[str] = set()
    char = yield from chars.after_blanks()
    if char == "}":
        return
    while True:
        if char != '"':
            raise Malformed
        key = yield from read_string(chars)
        if key in keys or (yield from chars.after_blanks()) != ":":
            raise Malformed
        keys.add(key)
        first = yield from chars.after_blanks()
        yield from member(key, first)
        if not (yield from _goes_on(chars, "}")):
            return
        char = yield from chars.after_blanks()


def read_string(chars: Characters) -> Reading[str]:
    """The string whose opening quote was taken."""
    written: list[str] = []
    while (char := (yield from chars.take())) != '"':
        if char < " ":
            raise Malformed
        written.append(char)
        if char == "\\":
            written.append((yield from _escaped(chars)))
    text: Any = json.loads(f'"{"".join(written)}"')
    return str(text)


def _escaped(chars: Characters) -> Reading[str]:
    char = yield from chars.take()
    if char != "u":
        if char not in '"\\/bfnrt':
            raise Malformed
        return char
    for _ in range(4):
        digit = yield from chars.take()
        if digit not in HEXADECIMAL:
            raise Malformed
        char += digit
    return char


def _items(chars: Characters, depth: int) -> Reading[None]:
    first = yield from chars.after_blanks()
    if first == "]":
        return
    while True:
        yield from read_value(chars, first, depth + 1)
        if not (yield from _goes_on(chars, "]")):
            return
        first = yield from chars.after_blanks()


def _goes_on(chars: Characters, end: str) -> Reading[bool]:
    """Whether a comma comes, and not the end."""
    char = yield from chars.after_blanks()
    if char not in (",", end):
        raise Malformed
    return char == ","


def _number(chars: Characters, first: str) -> Reading[None]:
    written = ""
    char = first
    while char in "+-.eE0123456789":
        written += char
        char = yield from chars.take()
    if NUMBER.fullmatch(written) is None:
        raise Malformed
    chars.put_back(char)
