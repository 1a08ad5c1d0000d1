"""forerun train: its commands under one name."""

from __future__ import annotations

import typer

from .train_acceptance_head import acceptance_head
from .train_adapter import exit_adapter
from .train_data import answers, prompts
from .train_disco import disco
from .train_draft import draft
from .train_layerskip import layerskip
from .train_report import report

train = typer.Typer(
    name="train",
    help="Make prompts and answers, train models that run ahead of themselves, and judge them.",
    no_args_is_help=True,
)
train.command("prompts")(prompts)
train.command("answers")(answers)
train.command("layerskip")(layerskip)
train.command("report")(report)
train.command("exit-adapter")(exit_adapter)
train.command("draft")(draft)
train.command("acceptance-head")(acceptance_head)
train.command("disco")(disco)
