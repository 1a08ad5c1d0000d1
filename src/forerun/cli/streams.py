"""The standard streams: closed, in an encoding of few characters, or with nobody at the other end."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


def settle_streams() -> None:
    """Make writing safe: what an encoding can't hold is shown as ?, and what goes to a closed stream is dropped."""
    sys.stdout, sys.stderr = _settled(sys.stdout), _settled(sys.stderr)


def _settled(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")
    return stream


def end_output() -> None:
    """Write what stdout still holds, or let it go nowhere: the interpreter's last flush mustn't fail again."""
    try:
        sys.stdout.flush()
        return
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
