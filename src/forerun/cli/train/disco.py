"""forerun train disco: a classifier that says after each drafted token whether to draft on (DISCO)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ...train.heads.recipes import DiscoRecipe
from ..flags import recipe_flags, recipe_of, takes
from ..output import check_folder
from ..shared_options import AsJson
from ..terminal import progress, show, show_json

HELP = {
    "top": "How many of a law's largest probabilities are read.",
    "width": "The width of the hidden layer.",
    "epochs": "Passes over the drafted tokens; the best one on held-out data is kept.",
    "rows": "Drafted tokens per step.",
    "learning_rate": "AdamW's.",
    "weight_decay": "AdamW's.",
    "seed": "The seed of the order and of the held-out choice.",
}
RECIPE = recipe_flags(DiscoRecipe, HELP)


@takes(*RECIPE)
def disco(
    traces: Annotated[list[Path], typer.Argument(help="Traces of one model and drafter (forerun trace).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write; it must not exist.")],
    held_out: Annotated[float, typer.Option(help="The share of prompts to hold out from training.")] = 0.2,
    cost: Annotated[
        float | None,
        typer.Option(help="A draft step's cost in target forwards, to choose the threshold; as traced if not given."),
    ] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a classifier on traces, for the policy disco."""
    from ...traces.read import read_trace
    from ...train.heads.disco import DiscoRun, train_disco

    recipe = recipe_of(DiscoRecipe, given)
    if output.exists():
        raise ValueError(f"{output} is there already; name another directory")
    check_folder(output.parent)
    run = DiscoRun(traces=list(map(read_trace, traces)), recipe=recipe, output=output, held_out=held_out, cost=cost)
    with progress("training", recipe.epochs) as tick:
        report = train_disco(run, tick)
    if as_json:
        show_json(asdict(report))
        return
    show(f"{report.output}: {report.steps} drafted tokens of {report.answers} answers in {report.seconds:.0f} s")
    show(
        f"held out: cross-entropy {report.cross_entropy:.3f}, of a constant {report.constant:.3f} (epoch {report.epoch}); "
        f"tau {report.tau:.2f} at a draft step's cost of {report.cost:.3f}"
    )
