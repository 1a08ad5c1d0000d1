"""A report in files: its numbers as JSON, and the pictures of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .output import write_text
from .terminal import finite, note

Draw = Callable[[Any, Path], list[Path]]


def write_report(told: Mapping[str, Any], file: Path, draw: Draw) -> None:
    """The report in this file, and its pictures in the file's folder; JSON has no infinities, so they are null."""
    write_text(file, json.dumps(finite(dict(told)), indent=1, allow_nan=False))
    write_pictures(told, file.parent, draw)


def write_pictures(told: Mapping[str, Any], folder: Path, draw: Draw) -> None:
    """What draw makes of the report, with a note on each file."""
    for path in draw(told, folder):
        note(f"wrote {path}")
