"""forerun train draft: a smaller model of the model's own, which drafts for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from ..models.draft_shape import DraftShape, spread_layers
from ..models.identity import identity_of
from ..train.distil import DistilRecipe
from ..train.distil_run import DistilRun
from ..train.draft_init import Cut
from ..train.draft_run import train_draft
from . import distil
from .flags import recipe_flags, recipe_of, takes
from .given import OPENING, PLAIN, AsJson, Model, open_engine
from .values import parse


@takes(*OPENING, *recipe_flags(DistilRecipe, distil.HELP))
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
        str, typer.Option(help="The model's layers that the draft begins with, 0,1,28,29; evenly spread if not given.")
    ] = "",
    states: distil.States = None,
    held_out: distil.HeldOut = 0.02,
    limit: distil.Limit = None,
    save_every: distil.SaveEvery = 100,
    resume: distil.Resume = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Cut a draft model out of a model and teach it the model's own answers: an ordinary checkpoint in bfloat16."""
    recipe = recipe_of(DistilRecipe, given)
    module = distil.opened(model, output, resume, limit, given["trust_remote_code"])
    config = module.model.config.get_text_config()
    wanted = DraftShape.parse(shape, config)
    wanted.check(config)
    layers: tuple[int, ...] = parse(from_layers, tuple[int, ...], "--from-layers") or spread_layers(
        wanted.layers, config.num_hidden_layers
    )
    run = DistilRun(
        shape=Cut(wanted, layers),
        recipe=replace(recipe, passes=1, vocabulary=wanted.vocabulary),
        examples=distil.examples_of(data, module, limit),
        stores=states or (),
        output=output,
        held_out=held_out,
        save_every=save_every,
        resume=resume,
    )
    identity = identity_of(module.model, module.vocabulary)
    with distil.bars() as begin:
        report = train_draft(run, module, identity, lambda: open_engine(model, PLAIN, given), begin, distil.noted)
    distil.tell(report, as_json)
