"""Makes events of the parts of calls, in the order in which clients want them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import final

from .characters import Malformed
from .events import Arguments, CallBegun, CallBroken, CallEnded, Event, Text


@final
class CallSink:
    """A call begins where both its name and its arguments are there; arguments that come first wait for the name.

    names: those that a call may have; None for any. whole: how many calls have ended well. after_call: one has, and no text
    came since.
    """

    def __init__(self, names: Collection[str] | None, make_id: Callable[[], str]) -> None:
        self.whole = 0
        self.after_call = False
        self._names = names
        self._make_id = make_id
        self._index = 0
        self._name = ""
        self._waiting = ""
        self._open = self._begun = False
        self._events: list[Event] = []

    def name(self, name: str) -> None:
        if not name or self._name or (self._names is not None and name not in self._names):
            raise Malformed
        self._name = name
        self._begin()

    def open_arguments(self) -> None:
        if self._open:
            raise Malformed
        self._open = True
        self._begin()

    def argument(self, char: str) -> None:
        if self._begun:
            self._say_argument(char)
        else:
            self._waiting += char

    def end(self) -> None:
        if not self._begun:
            raise Malformed
        self._events.append(CallEnded(self._index))
        self.whole += 1
        self.after_call = True
        self._next()

    def give_up(self) -> None:
        """No more comes of the call that is under way."""
        if self._begun:
            self._events.append(CallBroken(self._index))
        self._next()

    def say(self, text: str) -> None:
        """Text beside the calls."""
        if not text:
            return
        self.after_call = False
        last = self._events[-1] if self._events else None
        if isinstance(last, Text):
            self._events[-1] = Text(last.text + text)
        else:
            self._events.append(Text(text))

    def take(self) -> list[Event]:
        """The events since the last time."""
        taken, self._events = self._events, []
        return taken

    def _begin(self) -> None:
        if self._name and self._open:
            self._begun = True
            self._events.append(CallBegun(self._index, self._make_id(), self._name))
            if self._waiting:
                self._say_argument(self._waiting)

    def _next(self) -> None:
        # a call that was begun and is void keeps its index, which a client has seen
        self._index += self._begun
        self._name = self._waiting = ""
        self._open = self._begun = False

    def _say_argument(self, text: str) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, Arguments):
            self._events[-1] = Arguments(self._index, last.text + text)
        else:
            self._events.append(Arguments(self._index, text))
