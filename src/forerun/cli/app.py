"""The commands under one name.

A refusal prints one sentence on stderr and exits with status 2; a failure of the system (a full disk, a path that can't be
written) prints one sentence and exits with 1. A closed pipe ends the command in silence, with the status that a shell gives
for SIGPIPE.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from .. import __version__
from ..errors import ForerunError
from .deferred import group, opened
from .failures import closed_pipe, sentence
from .streams import end_output, settle_streams

FAILED = 1
REFUSED = 2
INTERRUPTED = 130
CLOSED_PIPE = 141

# name -> where it is, and the first sentences of its help
COMMANDS = {
    "generate": (
        "generate:generate",
        "Answer a prompt. In a terminal, the tokens that were drafted and accepted are green.",
    ),
    "chat": (
        "chat.chat:chat",
        "Talk to a model. In a terminal, the tokens that were drafted and accepted are green.",
    ),
    "serve": (
        "serve.command:serve",
        "Serve a model to OpenAI's clients, with drafts for every request and continuous batching.",
    ),
    "compare": (
        "compare:compare",
        "Measure a method against plain decoding. Exit status 1 if outputs differ by more than rounding explains.",
    ),
    "bench": (
        "bench:bench",
        "Measure methods and other engines on the same prompts, one after the other, in changing order.",
    ),
    "calibrate": (
        "calibrate:calibrate",
        "Measure milliseconds a forward by rows, for a model, its plans and a draft model. Kept for the next time.",
    ),
    "tune": (
        "tune.tune:tune",
        "Find the fastest lossless method for a model on your prompts and machine, or that none is. Goes on after a kill.",
    ),
    "design": (
        "tune.design:design",
        "Measure what draft models of many shapes would cost here, and say which to train and what it must reach.",
    ),
    "demo": (
        "demo.demo:demo",
        "Watch the bundled model write, with and without speculation, and see where it helps and where it doesn't.",
    ),
    "trace": (
        "tune.trace:trace",
        "Draft at every position of the model's greedy answers, for simulate and policies compare. Goes on after a kill.",
    ),
    "simulate": (
        "tune.simulate:simulate",
        "Replay a policy on a trace: its rounds, and the speed-up over plain decoding that the costs make of them.",
    ),
    "models": (
        "listing:models",
        "List the bundled models, and of every decoder of transformers whether it runs, and if not why.",
    ),
    "drafters": ("listing:drafters", "List the drafters with their options."),
    "drafts": (
        "train.drafts:drafts",
        "List the trained drafts that are known here, for every model or for one; FORERUN_DRAFTS names folders of your own.",
    ),
    "policies": ("tune.policies:policies", "List the length policies with their options, or compare them on a trace."),
    "doctor": (
        "doctor:doctor",
        "Show what this machine has, which kernels run and why, how fast memory is, and what a step takes at best.",
    ),
    "train": (
        "train.app:train",
        "Make prompts and answers; train models and drafters for speculative decoding; measure them.",
    ),
    "corpus": ("corpora.corpus:corpus", "Make texts of your own ready to be drafted from."),
    "export": ("export:export", "Write a draft model for other engines."),
}


def main() -> None:
    """The entry point."""
    settle_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit status."""
    streams = sys.stdout, sys.stderr
    try:
        status = app(args=list(arguments) or ["--help"], prog_name="forerun", standalone_mode=False)
        sys.stdout.flush()
        return int(status or 0)
    except typer.TyperException as error:
        return _told(_unknown(arguments) or error.format_message(), REFUSED)
    except (ForerunError, ValueError) as error:
        return _told(str(error), REFUSED)
    except typer.Abort:
        return INTERRUPTED
    except (SystemExit, OSError) as error:
        sys.stdout, sys.stderr = streams  # typer wraps them where a pipe is closed
        if closed_pipe(error):
            end_output()
            return CLOSED_PIPE
        message = sentence(error, arguments) if isinstance(error, OSError) else None
        if message is None:
            raise
        return _told(message, FAILED)


def _told(message: str, status: int) -> int:
    end_output()
    try:
        print(f"forerun: {' '.join(message.split())}", file=sys.stderr)
    except OSError:  # nobody reads it, and the status tells the rest
        return status
    return status


def _unknown(arguments: Sequence[str]) -> str | None:
    """A sentence with the commands or flags that there are, if one of the arguments should be one and isn't."""
    commands: Mapping[str, Any] = app.commands
    called = ""
    for name in (argument for argument in arguments if not argument.startswith("-")):
        called = f"{called} {name}".lstrip()
        if name not in commands:
            return f"unknown command {called!r}; known: {', '.join(commands)}"
        command = opened(commands[name])
        commands = vars(command).get("commands", {})
        if not commands:
            return _unknown_flag(command, arguments)
    return None


def _unknown_flag(command: Any, arguments: Sequence[str]) -> str | None:
    written = (one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts))
    known = [one for one in written if one.startswith("--")]
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag.startswith("--") and flag not in known:
            return f"unknown option {flag}; known: {', '.join(known)}"
    return None


root = typer.Typer(
    help="Speeds up language models by speculative decoding, without changing the probability of any text.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@root.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=lambda wanted: _version(wanted), is_eager=True),
    ] = False,
) -> None:
    pass


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


app = group(root, COMMANDS)
