"""forerun train exit-adapter: a block that lets a frozen model run ahead of itself."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ..models.checks import max_length_of
from ..models.identity import identity_of
from ..models.load import open_module
from ..train.adapter import AdapterRecipe, Progress, shape_like
from ..train.adapter_run import AdapterRun, train_adapter
from ..train.examples import read_examples
from ..train.workplace import check_output
from .flags import recipe_flags, recipe_of, takes
from .given import OPENING, PLAIN, AsJson, Model, open_engine
from .screen import note, progress, show, show_json

HELP = {
    "epochs": "Passes over the answers.",
    "passes": "Train so many drafted tokens deep, each on the adapter's own states of the one before.",
    "fade": "The weight of each drafted token against the one before.",
    "rows": "Rows in a step.",
    "learning_rate": "The highest learning rate.",
    "warmup": "Steps in which the learning rate rises.",
    "weight_decay": "AdamW's.",
    "vocabulary": "Learn to tell so many tokens apart, the most frequent of the answers.",
    "seed": "Decides order and what is held out.",
}
RECIPE = recipe_flags(AdapterRecipe, HELP)
LOG_EVERY = 20


@takes(*OPENING, *RECIPE)
def exit_adapter(
    model: Model,
    data: Annotated[list[Path], typer.Option(help="Answers of this model (forerun train answers); may be repeated.")],
    exit_layer: Annotated[int, typer.Option(help="The layer whose input is read; L of L: what the last layer gives.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write; it mustn't exist.")],
    inputs: Annotated[
        str, typer.Option(help="state: the exit's own; state+token: and the next token, no layer runs while drafting.")
    ] = "state+token",
    depth: Annotated[int, typer.Option(help="Blocks.")] = 1,
    states: Annotated[
        list[Path] | None, typer.Option(help="States kept by train answers --states; may be repeated.")
    ] = None,
    held_out: Annotated[float, typer.Option(help="The share of answers that is never trained on.")] = 0.02,
    limit: Annotated[int | None, typer.Option(help="Use only the first so many answers of each file.")] = None,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints to resume from.")] = 100,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that was interrupted.")] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a small block between an exit and the model's own head; the model and its answers stay as they are."""
    recipe = recipe_of(AdapterRecipe, given)
    if limit is not None and limit < 1:
        raise ValueError(f"--limit must be at least 1, got {limit}")
    check_output(output, resume)
    note(f"loading {model}")
    module = open_module(model, dtype="float32", device="cpu", trust_remote_code=given["trust_remote_code"])
    config = module.model.config.get_text_config()
    shape = shape_like(config, exit_layer, inputs, depth)
    examples = [one for file in data for one in read_examples(file, module.tokenizer, max_length_of(config))[:limit]]
    run = AdapterRun(
        shape=shape,
        recipe=recipe,
        examples=examples,
        stores=states or (),
        output=output,
        held_out=held_out,
        save_every=save_every,
        resume=resume,
    )
    with ExitStack() as stack:
        report = train_adapter(
            run,
            module,
            identity_of(module.model, module.vocabulary),
            engine=lambda: open_engine(model, PLAIN, given),
            begin=lambda what, ticks: stack.enter_context(progress(what, ticks)),
            log=_noted,
        )
    if as_json:
        show_json(asdict(report))
        return
    show(f"{report.output}: {report.steps} steps on {report.texts} texts in {report.seconds:.0f} s")
    places = ", ".join(f"{share:.2f}" for share in report.acceptance)
    show(f"right tokens at each place of a draft, on {report.held_out} held-out texts: {places}")


def _noted(now: Progress) -> None:
    if now.step % LOG_EVERY == 0 or now.step == now.steps:
        passes = ", ".join(f"{one:.3f}" for one in now.passes)
        note(f"step {now.step} of {now.steps}: loss {now.loss:.3f} ({passes}), learning rate {now.rate:.2g}")
