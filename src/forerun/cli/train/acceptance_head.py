"""forerun train acceptance-head: a head that says how far a draft will get (SpecDec++)."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ...train.heads.recipes import HeadRecipe
from ..flags import recipe_flags, recipe_of, takes
from ..method import method_flags, method_of
from ..output import check_folder
from ..shared_options import OPENING, OWN, AsJson, Drafter, Model, open_engine
from ..terminal import progress, show, show_json
from ..threads import THREADS
from .lines import SkipBad, counting, read_data, skipped_as_dict

HELP = {
    "depth": "Residual blocks; 0 is a linear probe.",
    "reject_weight": "How much more a rejection counts than an acceptance; the head's output is calibrated accordingly.",
    "mixing": "The share of the answer's own tokens in the text that the drafter reads, r.",
    "epochs": "Passes over the drafted tokens; the best one on held-out data is kept.",
    "rows": "Drafted tokens per step.",
    "learning_rate": "The highest learning rate.",
    "warmup": "The share of the steps in which the learning rate rises.",
    "weight_decay": "AdamW's.",
    "seed": "The seed of draws, order and the held-out choice.",
}
RECIPE = recipe_flags(HeadRecipe, HELP)
TAKEN = (
    *OWN,
    *(one.name for one in (*OPENING, *RECIPE)),
    "data",
    "output",
    "held_out",
    "cost",
    "limit",
    "batch",
    "skip_bad",
)


@takes(*OPENING, THREADS, *method_flags(TAKEN, ("drafter",)), *RECIPE)
def acceptance_head(
    model: Model,
    data: Annotated[
        list[Path], typer.Option(help="Answers that this model drew (forerun train answers); may be repeated.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write; it must not exist.")],
    drafter: Drafter,
    temperature: Annotated[
        float | None, typer.Option(help="The sampling temperature of the answers, if the file doesn't say it.")
    ] = None,
    held_out: Annotated[float, typer.Option(help="The share of answers to hold out from training.")] = 0.1,
    cost: Annotated[float, typer.Option(help="A draft step's cost in target forwards, to choose the threshold.")] = 0.1,
    limit: Annotated[int | None, typer.Option(help="Use only this many first answers of each file.")] = None,
    batch: Annotated[int, typer.Option(help="The number of answers that share a forward.")] = 8,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a head that predicts which drafted tokens the target accepts, for the policy acceptance_head."""
    from ...train.heads.acceptance_data import LEAST_PROMPT, sampling_of
    from ...train.heads.acceptance_run import HeadRun, train_head

    recipe = recipe_of(HeadRecipe, given)
    if output.exists():
        raise ValueError(f"{output} is there already; name another directory")
    check_folder(output.parent)
    laws = {sampling_of(file, temperature, counting(skip_bad)) for file in data}
    if len(laws) > 1:
        raise ValueError("the files' answers were drawn at several temperatures or top_p; give files that share one")
    engine = open_engine(model, method_of(drafter, "fixed", given), given)
    skipped = counting(skip_bad)
    limits = {"max_length": engine.runner.max_length, "vocab_size": engine.runner.vocab_size, "limit": limit}
    examples = read_data(data, engine.tokenizer, engine.eos, skipped, least_prompt=LEAST_PROMPT, **limits)
    run = HeadRun(
        examples=examples,
        sampling=laws.pop(),
        recipe=recipe,
        output=output,
        held_out=held_out,
        cost=cost,
        max_batch=batch,
    )
    with ExitStack() as stack:
        report = train_head(run, engine, lambda what, ticks: stack.enter_context(progress(what, ticks)))
    if as_json:
        show_json({**asdict(report), **skipped_as_dict(skipped)})
        return
    show(f"{report.output}: {report.tokens} drafted tokens of {report.texts} texts in {report.seconds:.0f} s")
    show(
        f"held out: cross-entropy {report.cross_entropy:.3f}, of a constant {report.constant:.3f} (epoch {report.epoch}); "
        f"h {report.h:.2f} at a draft step's cost of {cost:g}"
    )
