"""The field of a race: opens what answers for each candidate when it is its turn, and not too many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from .asking import Prompt
from .knobs import OFF, Knobs
from .subjects import Subject

Open = Callable[[Knobs], Subject]


class Field(ABC):
    """most: how many candidates can stay open."""

    most: int

    @abstractmethod
    def subject(self, knobs: Knobs, prompts: Sequence[Prompt]) -> Subject:
        """What answers these prompts for a candidate. Raises EngineFailed."""

    @abstractmethod
    def gone(self, knobs: Knobs) -> None:
        """A candidate won't be asked again."""

    @abstractmethod
    def close(self) -> None:
        """End all that was launched."""


@dataclass(slots=True)
class _Open:
    subject: Subject
    asked: set[str] = field(default_factory=set)


@final
class Launched(Field):
    """Servers of this run. The one that waits the longest ends where another needs its place, off last of all."""

    def __init__(self, opened: Open, most: int) -> None:
        self.most = most
        self._opened = opened
        self._open: dict[str, _Open] = {}  # the one that was used last comes last

    def subject(self, knobs: Knobs, prompts: Sequence[Prompt]) -> Subject:
        asked = {repr(prompt) for prompt in prompts}
        one = self._open.pop(knobs.name, None)
        if one is not None and knobs.remembers and one.asked & asked:
            one.subject.close()
            one = None
        if one is None:
            self._make_room()
            one = _Open(self._opened(knobs))
        one.asked |= asked
        self._open[knobs.name] = one
        return one.subject

    def gone(self, knobs: Knobs) -> None:
        one = self._open.pop(knobs.name, None)
        if one is not None:
            one.subject.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].subject.close()

    def _make_room(self) -> None:
        while len(self._open) >= self.most:
            name = next((one for one in self._open if one != OFF.name), OFF.name)
            self._open.pop(name).subject.close()


@final
class Running(Field):
    """Servers that are there already, by the names of candidates."""

    def __init__(self, subjects: Mapping[str, Subject]) -> None:
        self.most = len(subjects)
        self._subjects = dict(subjects)

    def subject(self, knobs: Knobs, prompts: Sequence[Prompt]) -> Subject:
        return self._subjects[knobs.name]

    def gone(self, knobs: Knobs) -> None:
        pass

    def close(self) -> None:
        pass
