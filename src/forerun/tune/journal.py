"""The log of a tuning run: one line per finished measurement, so that a killed run resumes after the last one.

A run asks for its measurements by name. One that is in the log takes no time, whatever is left of the budget. So a resumed
run repeats the same decisions, and loses at most the measurement in progress. Lines also say how much of the budget had been
spent by then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, final

from ..jsonl import Lines

MARK, FORMAT = "forerun_tune", 1


@final
class Journal:
    """Use it as a context. about says what is tuned: the log of something else is refused with ValueError.

    now counts seconds.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], now: Callable[[], float]) -> None:
        self._lines = Lines(path)
        self._now = now
        self._begun = now()
        self._known: dict[tuple[str, str], Mapping[str, Any]] = {}
        try:
            before = self._read({MARK: FORMAT, **json.loads(json.dumps(about))})
        except BaseException:
            self._lines.close()
            raise
        self._before = before

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()

    @property
    def spent(self) -> float:
        """Seconds of this run and of earlier ones, up to their last finished measurements."""
        return self._before + self._now() - self._begun

    def known(self, kind: str, name: str) -> Mapping[str, Any] | None:
        return self._known.get((kind, name))

    def kept(self, kind: str, name: str, measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The logged value of a name; it is measured and logged if missing."""
        found = self.known(kind, name)
        if found is None:
            found = json.loads(json.dumps(measure()))
            self._lines.write({"kind": kind, "name": name, "spent": round(self.spent, 3), "found": found})
            self._known[kind, name] = found
        return found

    def within(self, seconds: float, kind: str, name: str, measure: Callable[[], Mapping[str, Any]]) -> Any:
        """The same, but None for a missing value once more than `seconds` of the budget are spent."""
        if self.known(kind, name) is None and self.spent >= seconds:
            return None
        return self.kept(kind, name, measure)

    def _read(self, about: Mapping[str, Any]) -> float:
        """Read the log and the time spent; start the file if there is none."""
        if not self._lines.known:
            self._lines.write(about)
            return 0.0
        there, *lines = self._lines.known
        differing = [name for name in {**there, **about} if there.get(name) != about.get(name)]
        if differing:
            raise ValueError(
                f"{self._lines.path} is the log of a run that differs in {', '.join(differing)}; "
                "remove it to begin anew, or write to another file"
            )
        spent = 0.0
        for number, line in zip(self._lines.numbers[1:], lines, strict=True):
            try:
                self._known[line["kind"], line["name"]] = line["found"]
                spent = max(spent, float(line["spent"]))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self._lines.path}, line {number} is no measurement of a tuning run ({error!r}); remove the file to "
                    "begin anew"
                ) from error
        return spent
