"""forerun train: its commands under one name."""

from __future__ import annotations

import typer

from .train_data import answers, prompts

train = typer.Typer(
    name="train",
    help="Make prompts and answers, train models that run ahead of themselves, and judge them.",
    no_args_is_help=True,
)
train.command("prompts")(prompts)
train.command("answers")(answers)
