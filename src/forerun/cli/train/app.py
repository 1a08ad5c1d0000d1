"""forerun train: its commands under one name."""

from __future__ import annotations

import typer

from .acceptance_head import acceptance_head
from .adapter import exit_adapter
from .data import answers, prompts
from .disco import disco
from .draft import draft
from .layerskip import layerskip
from .report import report

train = typer.Typer(
    name="train",
    help="Make prompts and answers; train models and drafters for speculative decoding; measure them.",
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
