"""forerun train draft: a smaller model of the model's own, which drafts for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...models.files.draft_shape import DraftShape, spread_layers
from ...train.distil.recipe import DistilRecipe
from ..flags import recipe_flags, recipe_of, takes
from ..shared_options import OPENING, AsJson, Model
from ..threads import THREADS
from ..values import parse
from . import distil

if TYPE_CHECKING:
    from ...train.distil.draft_init import Cut


@takes(*distil.RUN, *OPENING, THREADS, *recipe_flags(DistilRecipe, distil.HELP))
def draft(
    model: Model,
    data: distil.Data,
    shape: Annotated[
        str,
        typer.Option(
            help="layers=4,width=384,mlp=1024,heads=6,vocabulary=8192: what is not named is the model's (forerun design "
            "ranks shapes). vocabulary: among how many tokens it drafts, the most frequent of the answers."
        ),
    ],
    output: distil.Output,
    from_layers: Annotated[
        str, typer.Option(help="The layers of the model to start from: 0,1,28,29; evenly spread if not given.")
    ] = "",
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Cut a draft model out of a model and teach it the model's own answers: an ordinary checkpoint in bfloat16."""
    from ...train.distil.draft_init import Cut
    from ...train.distil.draft_run import train_draft

    recipe = recipe_of(DistilRecipe, given)

    def plan(config: Any) -> tuple[Cut, DistilRecipe]:
        wanted = DraftShape.parse(shape, config)
        wanted.check(config)
        layers: tuple[int, ...] = parse(from_layers, tuple[int, ...], "--from-layers") or spread_layers(
            wanted.layers, config.num_hidden_layers
        )
        return Cut(wanted, layers), replace(recipe, passes=1, vocabulary=wanted.vocabulary)

    distil.taught(model, data, output, as_json, given, plan, train_draft)
