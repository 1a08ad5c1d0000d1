"""The texts in a user's files: text files as they are, of JSON lines what stands in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...jsonl import made_of

PIECE = 1_000_000  # characters of a text file that are read at once
KEYS = "text, messages (a list of objects with content) or turns (a list of texts)"


def texts_of(file: Path) -> Iterator[str]:
    """One after the other. Raises ValueError that names the file, and the line, that can't be read."""
    if file.suffix == ".jsonl":
        for _, texts in made_of(file, _texts_in, what="the corpus file"):
            yield from texts
        return
    try:
        with file.open(encoding="utf-8-sig") as opened:
            while lines := opened.readlines(PIECE):
                yield "".join(lines)
    except OSError as error:
        raise ValueError(f"can't read the corpus file {file}: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"can't read the corpus file {file}: it is no UTF-8 text ({error})") from error


def _texts_in(entry: Mapping[str, Any]) -> list[str]:
    if "text" in entry:
        found = [entry["text"]]
    elif isinstance(entry.get("turns"), list):
        found = entry["turns"]
    elif isinstance(entry.get("messages"), list):
        found = [one.get("content") if isinstance(one, dict) else one for one in entry["messages"]]
    else:
        raise ValueError(f"an object with {KEYS} is needed, got {', '.join(entry) or 'an empty one'}")
    if not all(isinstance(text, str) for text in found):
        raise ValueError(f"{KEYS} must hold texts, got {found!r:.60}")
    return found
