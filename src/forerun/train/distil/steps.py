"""The steps of a student's training, with a log and checkpoints in the run's folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO

from ..output_folder import STATE, OutputFolder
from .loop import Progress, Training

CHECKPOINT = "checkpoint.safetensors"

Begin = Callable[[str, int], Callable[[], None]]


def take_steps(
    training: Training, place: OutputFolder, save_every: int, begin: Begin, log: Callable[[Progress], None]
) -> None:
    """All that are left, from the last checkpoint on; of several processes the first one writes."""
    known = place.checkpoint()
    if known is not None:
        training.resume(known / CHECKPOINT)
    tick = begin("training", training.steps - training.step)
    with _log_file(place, training.step) if training.processes.main else nullcontext() as file:
        for now in training.run():
            if file is not None:
                file.write(json.dumps(asdict(now)) + "\n")
            log(now)
            tick()
            if now.step % save_every == 0 and now.step < now.steps:
                if file is not None:
                    file.flush()
                known = _checkpoint(training, place, known)


def _log_file(place: OutputFolder, step: int) -> IO[str]:
    logs = place.path / "logs"
    logs.mkdir(exist_ok=True)
    log_file = logs / "log.jsonl"
    _forget_later(log_file, step)
    return log_file.open("a", encoding="utf-8")


def _forget_later(log_file: Path, step: int) -> None:
    """Leave out of a log the steps that are taken again, and a line that a kill cut off."""
    if log_file.exists():
        with log_file.open("rb") as file:
            kept = list(islice(file, step))
        log_file.write_bytes(b"".join(kept))


def _checkpoint(training: Training, place: OutputFolder, old: Path | None) -> Path:
    folder = place.path / f"checkpoint-{training.step}"
    if training.processes.main:
        folder.mkdir(exist_ok=True)
    training.save(folder / CHECKPOINT)
    if training.processes.main:
        # written last: a checkpoint without it is not whole
        (folder / STATE).write_text(json.dumps({"step": training.step}), encoding="utf-8")
        if old is not None and old != folder:
            shutil.rmtree(old)
    return folder
