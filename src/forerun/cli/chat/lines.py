"""What a user types, line by line, and what ctrl-c ends."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..terminal import note

PROMPT = "> "
LEAVING = "ctrl-d or /quit ends the chat"


def lines() -> Iterator[str]:
    """The lines of stdin; in a terminal with a prompt, where ctrl-c drops a line."""
    if sys.stdin is None:
        raise ValueError("what to say is to come from stdin, which is closed; pipe lines in, or start it in a terminal")
    if not sys.stdin.isatty():
        yield from _piped()
        return
    _edit_lines()
    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            note("")  # what follows stands on a line of its own
            return
        except KeyboardInterrupt:
            note(f"\n{LEAVING}")


def _piped() -> Iterator[str]:
    try:
        yield from sys.stdin
    except UnicodeDecodeError as error:
        raise ValueError(
            f"stdin holds no {error.encoding} text ({error.reason} at byte {error.start}); convert it first"
        ) from error


def _edit_lines() -> None:
    """Let arrow keys move in a line and through earlier ones, where Python was built with readline."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(True)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Whether ctrl-c was pressed: the first time only asks to stop, so that no forward is torn; the second one raises."""
    pressed = threading.Event()

    def press(number: int, frame: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield pressed.is_set
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
