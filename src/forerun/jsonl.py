"""JSON lines, read in one way everywhere: one at a time, with their numbers; and written so that they survive a kill.

A line ends at a line feed alone, since JSON's strings may hold any other character that Python takes for an end. A carriage
return before it, a byte order mark and blank lines don't matter, nor whether the last line has an end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, final

T = TypeVar("T")

# the characters that JSON leaves as they are and other readers may take for the end of a line
_ESCAPED = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


@final
@dataclass(frozen=True, slots=True)
class Line:
    """A line as it stands in a file. what the file is, for messages."""

    path: Path
    number: int
    content: bytes
    what: str = "the file"

    @property
    def place(self) -> str:
        return f"{self.path}, line {self.number}"

    @property
    def ended(self) -> bool:
        return self.content.endswith(b"\n")

    @property
    def text(self) -> str:
        """Without its end. Raises ValueError on what is no UTF-8."""
        try:
            return self.content.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"can't read {self.what} {self.path}: line {self.number} is no UTF-8 ({error})") from error

    def value(self) -> dict[str, Any]:
        """The object on the line. Raises ValueError that names the file, the line and what is wrong with it."""
        text = self.text
        try:
            value = json.loads(text)
            if "\\ud" in text.lower():
                json.dumps(value, ensure_ascii=False).encode()
        except json.JSONDecodeError as error:
            cut = "" if self.ended else "; the file ends on this line, so it may be cut off"
            raise ValueError(
                f"{self.place}: not valid JSON ({error.msg} at column {error.colno}){_advice(text)}{cut}"
            ) from error
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise ValueError(
                f"{self.place}: {half} is half of a surrogate pair and no character; take it out"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.place}: JSON that can't be read ({error})") from error
        if not isinstance(value, dict):
            raise ValueError(f"{self.place}: an object is needed, got {text.strip()[:60]}{_advice(text)}")
        return value


def _advice(text: str) -> str:
    if not text.lstrip().startswith("["):
        return ""
    return "; a file that is one array becomes JSON lines with: jq -c '.[]' FILE"


@final
class Skipped:
    """Counts the lines that were left out because they are at fault; first says where the first is and why."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, reason: str) -> None:
        self.first = self.first or reason
        self.count += 1

    def sentence(self) -> str:
        """For the end of a message: "" where nothing was left out."""
        return f" ({self.count} lines were skipped, the first: {self.first})" if self.count else ""


def lines(path: str | Path, what: str = "the file") -> Iterator[Line]:
    """The lines of a file that aren't blank. Raises ValueError that names it where it can't be read."""
    try:
        with Path(path).open("rb") as file:
            yield from _lines(file, Path(path), what)
    except OSError as error:
        raise ValueError(f"can't read {what} {path}: {error}") from error


def _lines(file: Iterable[bytes], path: Path, what: str = "the file") -> Iterator[Line]:
    for number, content in enumerate(file, start=1):
        if content.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n"):
            yield Line(path, number, content, what)


def read_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers from 1 and their objects; blank lines are left out.

    Raises ValueError that names the file, and the line that is no JSON object.
    """
    return ((line.number, line.value()) for line in lines(path))


def made_of(
    path: str | Path, make: Callable[[dict[str, Any]], T], skipped: Skipped | None = None, what: str = "the file"
) -> Iterator[tuple[Line, T]]:
    """Each line and what `make` gives for its object; the place is put before what ValueErrors of `make` say.

    With skipped, lines at fault are counted there and left out.
    """
    for line in lines(path, what):
        try:
            made = _made(line, make)
        except ValueError as error:
            if skipped is None:
                raise
            skipped.add(str(error))
        else:
            yield line, made


def _made(line: Line, make: Callable[[dict[str, Any]], T]) -> T:
    value = line.value()
    try:
        return make(value)
    except ValueError as error:
        raise ValueError(f"{line.place}: {error}") from error


@final
class Lines:
    """A file of JSON lines that is being written. known are the objects that were there, numbers those of their lines.

    The beginning of an object without an end, which a kill leaves as the last line, is cut off on opening; a line that can't
    be written whole (a full disk) is cut off too, and ValueError says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+")
        self.known: list[dict[str, Any]] = []
        self.numbers: list[int] = []
        try:
            self._end = self._opened()
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

    def _opened(self) -> int:
        """Take in the whole lines, and say where the next one begins."""
        end = self._file.seek(0, 2)
        self._file.seek(0)
        for line in _lines(self._file, self.path):
            try:
                self.known.append(line.value())
            except ValueError:
                if line.ended or not line.content.startswith(b"{"):
                    raise
                end -= len(line.content)
                self._file.truncate(end)
            else:
                self.numbers.append(line.number)
                if not line.ended:
                    # another writer's last line, whole
                    end += self._file.write(b"\n")
        return end
