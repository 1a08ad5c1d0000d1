"""forerun train exit-adapter: a block that lets a frozen model run ahead of itself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..models.identity import identity_of
from ..train.adapter import shape_like
from ..train.adapter_run import train_adapter
from ..train.distil import DistilRecipe
from ..train.distil_run import DistilRun
from . import distil
from .flags import recipe_flags, recipe_of, takes
from .given import OPENING, PLAIN, AsJson, Model, open_engine

HELP = {
    **distil.HELP,
    "passes": "Train so many drafted tokens deep, each on the adapter's own states of the one before.",
    "fade": "The weight of each drafted token against the one before.",
    "vocabulary": "Learn to tell so many tokens apart, the most frequent of the answers.",
}


@takes(*OPENING, *recipe_flags(DistilRecipe, HELP))
def exit_adapter(
    model: Model,
    data: distil.Data,
    exit_layer: Annotated[int, typer.Option(help="The layer whose input is read; L of L: what the last layer gives.")],
    output: distil.Output,
    inputs: Annotated[
        str, typer.Option(help="state: the exit's own; state+token: and the next token, no layer runs while drafting.")
    ] = "state+token",
    depth: Annotated[int, typer.Option(help="Blocks.")] = 1,
    states: distil.States = None,
    held_out: distil.HeldOut = 0.02,
    limit: distil.Limit = None,
    save_every: distil.SaveEvery = 100,
    resume: distil.Resume = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a small block between an exit and the model's own head; the model and its answers stay as they are."""
    recipe = recipe_of(DistilRecipe, given)
    module = distil.opened(model, output, resume, limit, given["trust_remote_code"])
    run = DistilRun(
        shape=shape_like(module.model.config.get_text_config(), exit_layer, inputs, depth),
        recipe=recipe,
        examples=distil.examples_of(data, module, limit),
        stores=states or (),
        output=output,
        held_out=held_out,
        save_every=save_every,
        resume=resume,
    )
    identity = identity_of(module.model, module.vocabulary)
    with distil.bars() as begin:
        report = train_adapter(run, module, identity, lambda: open_engine(model, PLAIN, given), begin, distil.noted)
    distil.tell(report, as_json)
