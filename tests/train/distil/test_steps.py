"""What the steps of a training leave in its folder, from each of the processes that take them together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forerun.train.distil.loop import Progress
from forerun.train.distil.steps import CHECKPOINT, take_steps
from forerun.train.output_folder import OutputFolder
from forerun.train.processes import Processes


class Scripted:
    """A training of 5 steps that learns nothing and writes a file as its first process."""

    steps = 5

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.step = 0
        self.saved: list[str] = []

    def run(self) -> Iterator[Progress]:
        for step in range(self.step + 1, self.steps + 1):
            self.step = step
            yield Progress(step, self.steps, 0.1, 1.0 / step, (1.0 / step,))

    def save(self, file: Path) -> None:
        self.saved.append(file.parent.name)
        if self.processes.main:
            file.write_text(str(self.step))

    def resume(self, file: Path) -> None:
        self.step = int(file.read_text())


@pytest.fixture
def place(tmp_path: Path) -> OutputFolder:
    made = OutputFolder(tmp_path / "out", {})
    made.open()
    return made


def taken(training: Any, place: OutputFolder) -> list[int]:
    """The steps that are told; one of the ticks comes with each."""
    told: list[int] = []
    ticks: list[int] = []

    def begin(what: str, count: int) -> Any:
        ticks.append(count)
        return lambda: ticks.append(1)

    take_steps(training, place, 2, begin, lambda now: told.append(now.step))
    assert ticks == [len(told), *[1] * len(told)]
    return told


def test_the_first_process_keeps_a_log_and_the_last_checkpoint(place: OutputFolder) -> None:
    training = Scripted(Processes(0, 2))

    assert taken(training, place) == [1, 2, 3, 4, 5]
    assert training.saved == ["checkpoint-2", "checkpoint-4"]
    assert sorted(one.name for one in place.path.iterdir()) == ["checkpoint-4", "logs", "run.json"]
    log = (place.path / "logs" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == [1, 2, 3, 4, 5]


def test_another_process_takes_the_same_steps_and_writes_nothing(place: OutputFolder) -> None:
    training = Scripted(Processes(1, 2))

    assert taken(training, place) == [1, 2, 3, 4, 5]
    # it takes part in gathering what the first one writes
    assert training.saved == ["checkpoint-2", "checkpoint-4"]
    assert [one.name for one in place.path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("rank", [0, 1])
def test_every_process_goes_on_from_the_checkpoint(place: OutputFolder, rank: int) -> None:
    taken(Scripted(Processes()), place)
    assert (place.path / "checkpoint-4" / CHECKPOINT).read_text() == "4"

    assert taken(Scripted(Processes(rank, 2)), place) == [5]
