"""forerun train exit-adapter: a block that lets a frozen model run ahead of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...train.distil.recipe import DistilRecipe
from ..flags import recipe_flags, recipe_of, takes
from ..shared_options import OPENING, AsJson, Model
from ..threads import THREADS
from . import distil

if TYPE_CHECKING:
    from ...models.files.adapter import AdapterShape

HELP = {
    **distil.HELP,
    "passes": "The number of drafted tokens to unroll, each on the adapter's own state of the one before.",
    "fade": "The weight of each drafted token relative to the one before.",
    "vocabulary": "Train on this many tokens, the most frequent of the answers.",
}


@takes(*distil.RUN, *OPENING, THREADS, *recipe_flags(DistilRecipe, HELP))
def exit_adapter(
    model: Model,
    data: distil.Data,
    exit_layer: Annotated[int, typer.Option(help="The layer whose input is read; L of L: the output of the last one.")],
    output: distil.Output,
    inputs: Annotated[
        str,
        typer.Option(
            help="state: the state at the exit; state+token: also the next token; no layer runs while drafting."
        ),
    ] = "state+token",
    depth: Annotated[int, typer.Option(help="Blocks.")] = 1,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a small block between an exit and the model's own head; the model and its answers stay as they are."""
    from ...train.distil.adapter import shape_like
    from ...train.distil.adapter_run import train_adapter

    recipe = recipe_of(DistilRecipe, given)

    def plan(config: Any) -> tuple[AdapterShape, DistilRecipe]:
        return shape_like(config, exit_layer, inputs, depth), recipe

    distil.taught(model, data, output, as_json, given, plan, train_adapter)
