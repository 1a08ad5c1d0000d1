"""What the commands share that teach a student the model's own answers: flags, data, and what is said of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...models.packed.limits import max_length_of
from ...train.distil.recipe import DistilRecipe
from ...train.output_folder import check_output
from ...train.processes import launched, sharding_asked
from ..flags import flag
from ..output import check_folder
from ..shared_options import PLAIN, open_engine
from ..terminal import note, progress, show, show_json
from .lines import HELP as SKIPPING
from .lines import counting, read_data, skipped_as_dict

if TYPE_CHECKING:
    from ...core.identity import Identity
    from ...engine.engine import Engine
    from ...models.loading.load import Module
    from ...train.distil.loop import Progress
    from ...train.distil.run import DistilReport, DistilRun, Shape
    from ...train.distil.steps import Begin

    Train = Callable[
        [DistilRun[Shape], Module, Identity, Callable[[], Engine], Begin, Callable[[Progress], None]], DistilReport
    ]

HELP = {
    "epochs": "Passes over the answers.",
    "rows": "Rows per step.",
    "learning_rate": "The highest learning rate.",
    "warmup": "Steps in which the learning rate rises.",
    "weight_decay": "AdamW's.",
    "seed": "The seed of the order and of the held-out choice.",
}
LOG_EVERY = 20

Data = Annotated[list[Path], typer.Option(help="Answers of this model (forerun train answers); may be repeated.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The directory to write; it must not exist.")]
RUN = tuple(
    flag(name, kind, default, "Options", help)
    for name, kind, default, help in (
        ("states", list[Path] | None, None, "States kept by train answers --states; may be repeated."),
        ("held_out", float, 0.02, "The share of answers to hold out from training."),
        ("limit", int | None, None, "Use only this many first answers of each file."),
        ("save_every", int, 100, "Steps between checkpoints to resume from."),
        ("skip_bad", bool, False, SKIPPING),
        ("resume", bool, False, "Resume the interrupted run."),
    )
)


def taught(
    model: str,
    data: Sequence[Path],
    output: Path,
    as_json: bool,
    given: Mapping[str, Any],
    plan: Callable[[Any], tuple[Shape, DistilRecipe]],
    train: Train[Shape],
) -> None:
    """Train and say what came of it. plan: the student's shape and recipe for a model of this text configuration."""
    from ...core.identity import identity_of
    from ...models.loading.load import open_module
    from ...train.distil.run import DistilRun

    limit = given["limit"]
    if limit is not None and limit < 1:
        raise ValueError(f"--limit must be at least 1, got {limit}")
    sharding_asked()
    check_output(output, given["resume"])
    check_folder(output.parent)
    main = launched().main
    if main:
        note(f"loading {model}")
    module = open_module(model, dtype="float32", device="cpu", trust_remote_code=given["trust_remote_code"])
    config = module.model.config.get_text_config()
    shape, recipe = plan(config)
    skipped = counting(given["skip_bad"])
    limits = {"max_length": max_length_of(config), "vocab_size": config.vocab_size, "limit": limit}
    run = DistilRun(
        shape=shape,
        recipe=recipe,
        examples=read_data(data, module.tokenizer, module.eos, skipped, **limits),
        stores=given["states"] or (),
        output=output,
        held_out=given["held_out"],
        save_every=given["save_every"],
        resume=given["resume"],
    )
    identity = identity_of(module.model, module.vocabulary)
    with _bars() as begin:
        report = train(run, module, identity, lambda: open_engine(model, PLAIN, given), begin, _noted)
    if main:
        _tell(report, skipped_as_dict(skipped), as_json)


@contextmanager
def _bars() -> Iterator[Begin]:
    """Begins one progress bar after the other."""
    with ExitStack() as stack:

        def begin(what: str, ticks: int) -> Callable[[], None]:
            return stack.enter_context(progress(what, ticks))

        yield begin


def _noted(now: Progress) -> None:
    if now.step % LOG_EVERY == 0 or now.step == now.steps:
        passes = ", ".join(f"{one:.3f}" for one in now.passes)
        note(f"step {now.step} of {now.steps}: loss {now.loss:.3f} ({passes}), learning rate {now.rate:.2g}")


def _tell(report: DistilReport, skipped: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        show_json({**asdict(report), **skipped})
        return
    show(f"{report.output}: {report.steps} steps on {report.texts} texts in {report.seconds:.0f} s")
    places = ", ".join(f"{share:.2f}" for share in report.acceptance)
    show(f"right tokens at each position of a draft, on {report.held_out} held-out texts: {places}")
