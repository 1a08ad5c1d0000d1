"""A whole training run of a student: examples, states, steps with checkpoints, and what it writes at the end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import IO, Any, Generic, TypeVar

import torch

from ...core.identity import Identity
from ...drafters.vocabulary import first_ranked
from ...engine.engine import Engine
from ...models.files.adapter import AdapterShape
from ..data.examples import Example, fingerprint, split
from ..data.states import StateStore, holds_texts, record_missing
from ..output_folder import STATE, OutputFolder, check_output
from ..processes import joined, sharding_asked
from .data import DistilData, ranking_of
from .draft_init import Cut
from .frozen import Frozen
from .loop import Progress, Student, Training, acceptance
from .loss import Chosen
from .recipe import DistilRecipe

DRAFT = 4
CHECKPOINT = "checkpoint.safetensors"
STATES = "states"

Begin = Callable[[str, int], Callable[[], None]]
Shape = TypeVar("Shape", AdapterShape, Cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistilRun(Generic[Shape]):
    """What is trained, on what, and where to. stores may lack texts: the model reads those first, into the first store.

    held_out: the share of examples that is never trained on. save_every: steps between checkpoints.
    """

    shape: Shape
    recipe: DistilRecipe
    examples: Sequence[Example]
    stores: Sequence[Path]
    output: Path
    held_out: float = 0.02
    save_every: int = 100
    resume: bool = False

    def __post_init__(self) -> None:
        if self.save_every < 1:
            raise ValueError(f"save_every must be at least 1, got {self.save_every}")


@dataclass(frozen=True, slots=True)
class DistilReport:
    """acceptance: on held-out answers, the share of right tokens at each place of a greedy draft, where it was reached."""

    output: str
    steps: int
    texts: int
    answer_tokens: int
    held_out: int
    acceptance: tuple[float, ...]
    seconds: float


def distil(
    run: DistilRun[Shape],
    exit_layer: int,
    student: Callable[[Chosen, Sequence[Example]], Student],
    frozen: Frozen,
    identity: Identity,
    engine: Callable[[], Engine],
    begin: Begin,
    log: Callable[[Progress], None],
) -> DistilReport:
    """Train and write. student makes one for the chosen tokens, from the examples that are learnt.

    exit_layer: whose input the student reads beside the states of the last layer. engine opens the model to read texts
    whose states are not held, and is called only then. begin starts a progress bar with so many ticks. Raises ValueError on
    data that can't be used, another run in the output's place, or a full disk.

    The processes of a launch train together; the first one reads texts, writes, and tells.
    """
    begun = perf_counter()
    learn, out = split(run.examples, run.held_out, run.recipe.seed)
    ranking = ranking_of(learn)
    tokens = torch.tensor(first_ranked(ranking.tolist(), run.recipe.vocabulary, len(frozen.head)))
    chosen = Chosen(tokens, frozen.head[tokens].float())
    sharding_asked()
    check_output(run.output, run.resume)
    about = _about(run, identity)
    place = OutputFolder(run.output, about, _expensive)
    with joined() as processes, ExitStack() as stack:
        main = processes.main
        begin, log = (begin, log) if main else (_no_bar, _no_log)
        # nobody may find the folder there who hasn't checked the output yet
        processes.wait()
        if main:
            place.open()
            stack.enter_context(place.guarded())
            with ExitStack() as reading:
                _fill(_opened(run, exit_layer, place, identity, reading), run.examples, engine, begin)
        processes.wait()
        stores = _opened(run, exit_layer, place, identity, stack)
        layers = int(frozen.config.num_hidden_layers)
        data, held = (DistilData(some, stores, exit_layer, layers) for some in (learn, out))
        training = Training(student(chosen, learn), frozen, chosen, data, run.recipe, processes)
        _steps(training, place, run.save_every, begin, log)
        accepted = acceptance(training.student, frozen, chosen, held, DRAFT, processes=processes)
        if main:
            trained = {
                **about,
                "acceptance": accepted,
                "held_out": len(out),
                "steps": training.steps,
                "seconds": perf_counter() - begun,
            }
            _finish(training.student, place, ranking, trained)
    return DistilReport(
        output=str(run.output),
        steps=training.steps,
        texts=len(learn),
        answer_tokens=sum(len(one.ids) - one.start for one in learn),
        held_out=len(out),
        acceptance=tuple(accepted),
        seconds=perf_counter() - begun,
    )


def _expensive(place: Path) -> Sequence[Path]:
    """The states that were read: most of a run's time."""
    return [place / STATES] if holds_texts(place / STATES) else []


def _about(run: DistilRun[Shape], identity: Identity) -> dict[str, Any]:
    """What makes this run the same run."""
    return {
        "shape": asdict(run.shape),
        "recipe": asdict(run.recipe),
        "base": identity.as_dict(),
        "data": fingerprint(run.examples),
        "held_out_share": run.held_out,
    }


def _opened(
    run: DistilRun[Shape], exit_layer: int, place: OutputFolder, identity: Identity, stack: ExitStack
) -> list[StateStore]:
    """The stores of a run, which the stack closes."""
    layers = sorted({exit_layer, identity.num_layers})
    return [
        stack.enter_context(closing(StateStore.opened(path, layers, identity.hidden_size, identity.weights)))
        for path in run.stores or [place.path / STATES]
    ]


def _fill(
    stores: Sequence[StateStore], examples: Sequence[Example], engine: Callable[[], Engine], begin: Begin
) -> None:
    texts = [one.ids[:-1] for one in examples]
    missing = [text for text in texts if not any(text in store for store in stores)]
    if missing:
        tick = begin("reading texts", len(missing))
        record_missing(engine(), stores[0], missing, tick)


def _steps(
    training: Training, place: OutputFolder, save_every: int, begin: Begin, log: Callable[[Progress], None]
) -> None:
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


def _finish(student: Student, place: OutputFolder, ranking: torch.Tensor, trained: Mapping[str, Any]) -> None:
    done = place.path / "done"
    shutil.rmtree(done, ignore_errors=True)
    student.write(done, ranking, trained)
    place.finish(done, place.path / "logs")


def _no_bar(what: str, ticks: int) -> Callable[[], None]:
    return lambda: None


def _no_log(now: Progress) -> None:
    """The first process tells."""
