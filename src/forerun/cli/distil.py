"""What the commands share that teach a student the model's own answers: flags, data, and what is said of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..models.checks import max_length_of
from ..models.load import Module, open_module
from ..train.distil import Progress
from ..train.distil_run import Begin, DistilReport
from ..train.examples import Example, read_examples
from ..train.workplace import check_output
from .screen import note, progress, show, show_json

HELP = {
    "epochs": "Passes over the answers.",
    "rows": "Rows in a step.",
    "learning_rate": "The highest learning rate.",
    "warmup": "Steps in which the learning rate rises.",
    "weight_decay": "AdamW's.",
    "seed": "Decides order and what is held out.",
}
LOG_EVERY = 20

Data = Annotated[list[Path], typer.Option(help="Answers of this model (forerun train answers); may be repeated.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The directory to write; it mustn't exist.")]
States = Annotated[list[Path] | None, typer.Option(help="States kept by train answers --states; may be repeated.")]
HeldOut = Annotated[float, typer.Option(help="The share of answers that is never trained on.")]
Limit = Annotated[int | None, typer.Option(help="Use only the first so many answers of each file.")]
SaveEvery = Annotated[int, typer.Option(help="Steps between checkpoints to resume from.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that was interrupted.")]


def opened(model: str, output: Path, resume: bool, limit: int | None, trust_remote_code: bool) -> Module:
    """The model in float32, once what can be checked without it was."""
    if limit is not None and limit < 1:
        raise ValueError(f"--limit must be at least 1, got {limit}")
    check_output(output, resume)
    note(f"loading {model}")
    return open_module(model, dtype="float32", device="cpu", trust_remote_code=trust_remote_code)


def examples_of(files: Sequence[Path], module: Module, limit: int | None) -> list[Example]:
    longest = max_length_of(module.model.config.get_text_config())
    return [one for file in files for one in read_examples(file, module.tokenizer, longest)[:limit]]


@contextmanager
def bars() -> Iterator[Begin]:
    """Begins one progress bar after the other."""
    with ExitStack() as stack:

        def begin(what: str, ticks: int) -> Callable[[], None]:
            return stack.enter_context(progress(what, ticks))

        yield begin


def noted(now: Progress) -> None:
    if now.step % LOG_EVERY == 0 or now.step == now.steps:
        passes = ", ".join(f"{one:.3f}" for one in now.passes)
        note(f"step {now.step} of {now.steps}: loss {now.loss:.3f} ({passes}), learning rate {now.rate:.2g}")


def tell(report: DistilReport, as_json: bool) -> None:
    if as_json:
        show_json(asdict(report))
        return
    show(f"{report.output}: {report.steps} steps on {report.texts} texts in {report.seconds:.0f} s")
    places = ", ".join(f"{share:.2f}" for share in report.acceptance)
    show(f"right tokens at each place of a draft, on {report.held_out} held-out texts: {places}")
