"""A whole training run of a student: examples, states, steps with checkpoints, and what it writes at the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch

from ...core.identity import Identity
from ...drafters.vocabulary import first_ranked
from ...engine.engine import Engine
from ...models.files.adapter import AdapterShape
from ..data.examples import Example, fingerprint, split
from ..data.states import StateStore, holds_texts, record_missing
from ..output_folder import OutputFolder, check_output
from ..processes import joined, sharding_asked
from .data import DistilData, ranking_of
from .draft_init import Cut
from .frozen import Frozen
from .loop import Progress, Student, Training, acceptance
from .loss import Chosen
from .recipe import DistilRecipe
from .steps import Begin, take_steps

DRAFT = 4
STATES = "states"

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
        take_steps(training, place, run.save_every, begin, log)
        accepted = acceptance(training.student, frozen, chosen, held, DRAFT, processes=processes)
        if main:
            facts = {"acceptance": accepted, "held_out": len(out), "steps": training.steps}
            trained = {**about, **facts, "seconds": perf_counter() - begun}
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


def _finish(student: Student, place: OutputFolder, ranking: torch.Tensor, trained: Mapping[str, Any]) -> None:
    done = place.path / "done"
    shutil.rmtree(done, ignore_errors=True)
    student.write(done, ranking, trained)
    place.finish(done, place.path / "logs")


def _no_bar(what: str, ticks: int) -> Callable[[], None]:
    return lambda: None


def _no_log(now: Progress) -> None:
    """The first process tells."""
