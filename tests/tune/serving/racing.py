"""A field whose answers take the time that a test says, without a server; and a run on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun.tune.journal import Journal
from forerun.tune.serving.asking import Answered, EngineFailed, Prompt, answered
from forerun.tune.serving.field import Field, Launched
from forerun.tune.serving.knobs import OFF, Knobs, Wanted
from forerun.tune.serving.run import ServingOutcome, ServingSetup, tune_engine
from forerun.tune.serving.serving_engine import Launch, ServingEngine
from forerun.tune.serving.subjects import Subject

PROMPTS = [f"prompt {number}" for number in range(12)]
NEW = 10
ABOUT = {"engine": "scripted"}


def knobs(name: str, place: int = 1, **more: Any) -> Knobs:
    return Knobs(name, name, place, **more)


class Timed(Subject):
    """Answers of NEW tokens each; `seconds` is a heat's time by load, with a little noise that follows from the prompts."""

    def __init__(self, script: Script, one: Knobs) -> None:
        self._script, self._one = script, one

    def answer(self, prompts: Sequence[Prompt], at_once: int) -> Answered:
        self._script.asked.append((self._one.name, at_once, tuple(map(str, prompts))))
        if self._script.dies_at == len(self._script.asked):
            raise KeyboardInterrupt
        if self._one.name in self._script.fails:
            raise EngineFailed(self._script.fails[self._one.name])
        given = self._script.seconds.get(self._one.name, 1.0)
        seconds = given if isinstance(given, float) else given[at_once]
        seconds *= 1 + 0.01 * (sum(map(ord, str(prompts[0]))) % 5)
        self._script.clock += seconds
        return answered([f"{prompt}!" for prompt in prompts], NEW * len(prompts), seconds, 4, 2)

    def close(self) -> None:
        self._script.closed.append(self._one.name)


class Script:
    """seconds: by name, at every load or by load, 1 if not said. fails: reasons by name. opening: how long that takes."""

    def __init__(
        self,
        seconds: Mapping[str, float | Mapping[int, float]] | None = None,
        fails: Mapping[str, str] | None = None,
        opening: float = 0.0,
        dies_at: int | None = None,
        most: int = 8,
    ) -> None:
        self.seconds, self.fails, self.dies_at = dict(seconds or {}), dict(fails or {}), dies_at
        self.clock, self._opening, self._most = 0.0, opening, most
        self.asked: list[tuple[str, int, tuple[str, ...]]] = []
        self.opened: list[str] = []
        self.closed: list[str] = []

    def now(self) -> float:
        return self.clock

    def field(self) -> Field:
        def opened(one: Knobs) -> Subject:
            self.opened.append(one.name)
            self.clock += self._opening
            return Timed(self, one)

        return Launched(opened, self._most)


class Scripted(ServingEngine):
    """Knobs by name, with what stands near each of them."""

    name, form, program, methods, most_open = "scripted", "hf", "scripted", ("a", "b"), 8

    def __init__(
        self,
        near: Mapping[str, Sequence[Knobs]] | None = None,
        merging: Callable[[Mapping[int, Knobs]], Knobs | None] = lambda by_load: None,
    ) -> None:
        self._near, self._merging = dict(near or {}), merging

    def version(self, program: str) -> str:
        return "1"

    def check(self, launch: Launch, wanted: Wanted) -> None:
        pass

    def first(self, wanted: Wanted) -> list[Knobs]:
        return []

    def near(self, knobs: Knobs) -> list[Knobs]:
        return list(self._near.get(knobs.name, ()))

    def command(self, launch: Launch, knobs: Knobs) -> list[str]:
        return ["scripted", knobs.name]

    def merged(self, by_load: Mapping[int, Knobs]) -> Knobs | None:
        return self._merging(by_load)


def tuned(
    folder: Path,
    script: Script,
    first: Sequence[Knobs],
    engine: ServingEngine | None = None,
    prompts: Sequence[Prompt] = PROMPTS,
    **changes: Any,
) -> ServingOutcome:
    """A run whose log lies in the folder."""
    setup = ServingSetup(Wanted(), **{"budget": 100.0, **changes})
    with Journal(folder / "log.jsonl", ABOUT, script.now) as journal:
        field = script.field()
        try:
            return tune_engine(engine or Scripted(), setup, field, journal, prompts, first)
        finally:
            field.close()


__all__ = ["ABOUT", "NEW", "OFF", "PROMPTS", "Script", "Scripted", "Timed", "knobs", "tuned"]
