"""forerun train layerskip: a model that can leave early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ...models.packed.limits import max_length_of
from ...train.layerskip.presets import Recipe, preset
from ...train.layerskip.settings import Settings
from ...train.output_folder import check_output
from ...train.processes import launched
from ..flags import flag, takes
from ..output import check_folder
from ..shared_options import AsJson, Model
from ..terminal import note, progress, show, show_json
from ..threads import THREADS
from .lines import SkipBad, counting, read_data, skipped_as_dict

RECIPE = tuple(
    flag(name, kind, None, "Recipe", help)
    for name, kind, help in (
        ("p_max", float | None, "Dropout rate of the last layer; the preset's if not given, like all of these."),
        ("e_scale", float | None, "How much early exits count, 0 to 1; with --p-max 0, 0 is ordinary fine-tuning."),
        ("curriculum", str | None, "Which exits are trained at a step: all, rotational or gradual."),
        ("rotation", int | None, "R of the rotational curriculum; 0: one less than there are layers."),
        ("learning_rate", float | None, "The highest learning rate."),
    )
)
DEFAULTS = Settings()
SETTINGS = tuple(
    flag(name, kind, getattr(DEFAULTS, name), "Training", help)
    for name, kind, help in (
        ("steps", int | None, "Optimiser steps; as many as the epochs have if not given."),
        ("epochs", float, "Passes over the examples."),
        ("batch_size", int, "Rows in a forward of one process."),
        ("accumulate", int, "Forwards per optimiser step."),
        ("bf16", bool, "Forward and backward in bfloat16; the weights are trained in float32 either way."),
        ("checkpoint_layers", bool, "Use less memory: recompute layers in the backward pass."),
        ("pack", int, "Pack examples into rows of this many tokens; 0: one row per example."),
        ("lora_rank", int, "Train LoRA matrices of this rank and merge them at the end; 0: all weights."),
        ("held_out", float, "The share of examples to hold out from training."),
        ("seed", int, "The seed of order, dropout and the held-out choice."),
        ("schedule", str, "Learning rate over the steps: linear, cosine or constant."),
        ("warmup", int, "Steps in which the learning rate rises."),
        ("weight_decay", float, "AdamW's."),
        ("save_every", int, "Steps between checkpoints to resume from; 0: none."),
        ("log_every", int, "Steps between lines of the log."),
    )
)


@takes(*RECIPE, *SETTINGS, THREADS)
def layerskip(
    model: Model,
    data: Annotated[
        Path, typer.Option(help="Conversations, instructions, prompts with answers, or texts as JSON lines.")
    ],
    output: Annotated[Path, typer.Option(help="The directory to write; it must not exist.")],
    preset_name: Annotated[
        str, typer.Option("--preset", help="The paper's settings: from_scratch, continual or fine_tune.")
    ] = "fine_tune",
    resume: Annotated[bool, typer.Option("--resume", help="Resume the interrupted run.")] = False,
    max_length: Annotated[
        int | None, typer.Option(help="Refuse longer examples; the model's longest if not given.")
    ] = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a model with layer dropout and early-exit loss (LayerSkip, arXiv 2404.16710); under accelerate launch, too."""
    from ...models.loading.load import open_module
    from ...train.layerskip.run import check_training, train

    check_training()
    recipe = recipe_of(preset_name, given)
    settings = Settings(**{one.name: given[one.name] for one in SETTINGS})
    check_output(output, resume)
    check_folder(output.parent)
    if launched().main:
        note(f"loading {model}")
    module = open_module(model)
    config, skipped = module.model.config.get_text_config(), counting(skip_bad)
    longest = max_length if max_length is not None else max_length_of(config)
    limits = {"max_length": longest, "vocab_size": config.vocab_size}
    examples = read_data([data], module.tokenizer, module.eos, skipped, **limits)
    with ExitStack() as stack:

        def begin(steps: int) -> Callable[[], None]:
            return stack.enter_context(progress("training", steps))

        report = train(module, examples, output, recipe, settings, resume=resume, begin=begin, log=_noted)
    if not report.main:
        return
    if as_json:
        show_json({**asdict(report), **skipped_as_dict(skipped)})
        return
    show(f"{report.output}: {report.steps} steps on {report.examples} examples in {report.seconds:.0f} s")
    show(f"loss on {report.held_out} held-out examples: {report.held_out_loss:.4f}")


def recipe_of(name: str, given: Mapping[str, Any]) -> Recipe:
    """The preset of this name with what was given in its place."""
    changes = {one.name: given[one.name] for one in RECIPE if given[one.name] is not None}
    return replace(preset(name), **changes)


def _noted(entry: Mapping[str, Any]) -> None:
    if "loss" in entry:
        note(
            f"step {entry['step']}: loss {float(entry['loss']):.4f}, learning rate {float(entry['learning_rate']):.2g}"
        )
