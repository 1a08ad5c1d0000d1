"""Where output goes: results to stdout, everything else to stderr; colours only in a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 120


def out() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def note(message: str) -> None:
    """A line for the reader on stderr."""
    Console(stderr=True, highlight=False).print(Text(message, style="dim"), soft_wrap=True)


def show(message: str = "") -> None:
    """A line of the result on stdout."""
    out().print(Text(message), soft_wrap=True)


def write(text: str, drafted: bool) -> None:
    """A piece of a stream; in a terminal coloured if it was drafted, and without control characters."""
    console = Console(highlight=False)
    if console.is_terminal:
        shown = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
        console.print(Text(shown, style="green" if drafted else ""), end="", soft_wrap=True)
    else:
        sys.stdout.write(text)
    sys.stdout.flush()


def show_json(value: Any) -> None:
    """One JSON object on stdout; infinities and NaN become null, what the encoding can't hold becomes an escape."""
    printable = finite(value)
    text = json.dumps(printable, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(printable, allow_nan=False)
    sys.stdout.write(text + "\n")


def finite(value: Any) -> Any:
    """The value with None for infinities and NaN, which JSON doesn't have."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out().print(table)


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on stderr, in a terminal only; call what it gives once for each step."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        yield lambda: bar.advance(task)
