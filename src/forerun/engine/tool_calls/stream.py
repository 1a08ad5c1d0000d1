"""Takes calls out of a growing text."""

from __future__ import annotations

from collections.abc import Callable, Collection
from secrets import choice
from string import ascii_letters, digits
from typing import final

from .characters import BLANKS, Characters, Malformed, Reading
from .events import Event
from .forms import ToolForm
from .sink import CallSink

ID_LENGTH = 24


def new_id(form: ToolForm) -> str:
    """An id for a call, as long as the form's template takes it."""
    drawn = "".join(choice(ascii_letters + digits) for _ in range(form.id_length or ID_LENGTH))
    return drawn if form.id_length else f"call_{drawn}"


@final
class CallStream:
    """Pieces of a text in, text and calls out: the same calls and the same text, however the text was cut.

    What turns out malformed, or is cut off, is text, its opening included. Blanks before an opening and after the last call
    are left out. names: the functions that there are. Another one's call is malformed where a form has no opening, since
    nothing else tells it from JSON that is the answer.
    """

    def __init__(self, form: ToolForm, names: Collection[str], make_id: Callable[[ToolForm], str] = new_id) -> None:
        self._form = form
        self._sink = CallSink(None if form.opening else frozenset(names), lambda: make_id(form))
        self._held = ""  # text that may be the beginning of an opening, and blanks before one
        self._raw: list[str] = []  # what was read since the last whole call
        self._body: Reading[None] | None = None
        if not form.opening:
            self._begin("")

    def push(self, text: str) -> list[Event]:
        """What this text makes certain."""
        while text:
            text = self._in_text(text) if self._body is None else self._in_body(text)
        return self._sink.take()

    def finish(self) -> list[Event]:
        """What is left at the end of the text."""
        if self._body is not None:
            self._break()
        if self._held.strip(BLANKS) or not self._sink.after_call:
            self._sink.say(self._held)
        self._held = ""
        return self._sink.take()

    def _in_text(self, text: str) -> str:
        """Look for an opening; the rest of the text after one."""
        whole, opening = self._held + text, self._form.opening
        before, found, rest = whole.partition(opening) if opening else (whole, "", "")
        sure = before[: len(before) - (0 if found else _begun(before, opening))].rstrip(BLANKS)
        self._sink.say(sure)
        self._held = before[len(sure) :]
        if found:
            self._begin(self._held + found)
            self._held = ""
        return rest

    def _in_body(self, text: str) -> str:
        """Read calls; the rest of the text after them."""
        assert self._body is not None
        for place, char in enumerate(text):
            whole = self._sink.whole
            try:
                self._body.send(char)
            except StopIteration:
                self._body = None
                return text[place + 1 :]
            except Malformed:
                self._break()
                return text[place:]  # what doesn't fit may begin an opening
            if self._sink.whole == whole:
                self._raw.append(char)
            else:
                self._raw.clear()
        return ""

    def _begin(self, raw: str) -> None:
        self._raw = [raw]
        self._body = self._form.body(Characters(), self._sink)
        next(self._body)

    def _break(self) -> None:
        """Make text of what was read since the last whole call."""
        self._body = None
        self._sink.give_up()
        raw = "".join(self._raw)
        if raw.strip(BLANKS):
            self._sink.say(raw)
        else:
            self._held = raw


def _begun(text: str, opening: str) -> int:
    """How many characters at the end of the text may begin an opening."""
    lengths = range(min(len(text), len(opening) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(opening[:length])), 0)
