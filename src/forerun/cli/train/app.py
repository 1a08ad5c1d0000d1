"""forerun train: its commands under one name."""

from __future__ import annotations

import typer

from ...train.processes import launched
from ..deferred import group

COMMANDS = {
    "prompts": (
        "train.data:prompts",
        "Sample what users say from a chat model's own template, where no prompts are at hand. Goes on after a kill.",
    ),
    "answers": (
        "train.data:answers",
        "Let the model answer prompts, many at a time, as data to train a draft on. Goes on after a kill.",
    ),
    "layerskip": (
        "train.layerskip:layerskip",
        "Train a model with layer dropout and early-exit loss (LayerSkip, arXiv 2404.16710); under accelerate launch, too.",
    ),
    "report": (
        "train.report:report",
        "Judge a model's exits on held-out examples: loss, agreement, exact answers, acceptance and speed-up.",
    ),
    "exit-adapter": (
        "train.adapter:exit_adapter",
        "Train a small block between an exit and the model's own head; the model and its answers stay as they are.",
    ),
    "draft": (
        "train.draft:draft",
        "Cut a draft model out of a model and teach it the model's own answers: an ordinary checkpoint in bfloat16.",
    ),
    "compact": (
        "train.compact:compact",
        "Keep of a trained draft only what differs from its model, in small weights, with a model card.",
    ),
    "ngrams": (
        "train.ngrams:ngrams",
        "Count which token follows which in the model's own answers: a table that suffix and auto ask, in seconds.",
    ),
    "acceptance-head": (
        "train.acceptance_head:acceptance_head",
        "Train a head that predicts which drafted tokens the target accepts, for the policy acceptance_head.",
    ),
    "disco": ("train.disco:disco", "Train a classifier on traces, for the policy disco."),
}
# in a launch of several processes all others would do the same work twice, and write into each other's files
TOGETHER = ("layerskip", "exit-adapter", "draft")


def _check_launch(context: typer.Context) -> None:
    if launched().size > 1 and context.invoked_subcommand not in TOGETHER:
        raise ValueError(
            f"train {context.invoked_subcommand} runs in one process, and {launched().size} were launched; call it without "
            f"a launcher (several processes can run: {', '.join(TOGETHER)})"
        )


train = group(
    typer.Typer(
        name="train",
        help="Make prompts and answers; train models and drafters for speculative decoding; measure them.",
        no_args_is_help=True,
        callback=_check_launch,
    ),
    COMMANDS,
)
