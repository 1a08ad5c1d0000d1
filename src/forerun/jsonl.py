"""JSON lines that survive a kill: whole lines are read with their numbers, and writing goes on behind the last whole one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, final

# the characters that JSON leaves as they are and other readers may take for the end of a line
_ESCAPED = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers from 1 and their objects; blank lines are left out.

    Raises ValueError that names the file, and the line that is no JSON object.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"can't read {path}: {error}") from error
    return _objects(content, path)


def _objects(content: bytes, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"can't read {path}: {error}") from error
    # not splitlines: JSON's strings may hold other characters that it takes for the end of a line
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _object(line, f"{path}, line {number}")


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not valid JSON ({error.msg} at column {error.colno})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{place}: an object is needed, got {line.strip()[:60]}")
    return value


@final
class Lines:
    """A file of JSON lines that is being written. known are the objects that were there.

    A last line without an end, which a kill leaves, is cut off on opening; a line that can't be written whole (a full
    disk) is cut off too, and ValueError says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+")
        self._file.seek(0)
        content = self._file.read()
        self._end = content.rfind(b"\n") + 1
        self._file.truncate(self._end)
        try:
            self.known = [value for _, value in _objects(content[: self._end], path)]
        except ValueError:
            self.close()
            raise

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def write(self, value: Mapping[str, Any]) -> None:
        line = (json.dumps(value, ensure_ascii=False).translate(_ESCAPED) + "\n").encode()
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self._file.truncate(self._end)
            raise ValueError(f"can't write to {self.path}: {error}; what was written before is whole") from error
        self._end += len(line)
