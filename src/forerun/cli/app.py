"""The commands under one name.

What is refused gets one sentence on stderr and exit status 2; what the system fails at (a full disk, a path that can't be
written) one sentence and 1. A closed pipe ends the command in silence, with the status that a shell gives for SIGPIPE.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ..errors import ForerunError
from .bench import bench
from .calibrate import calibrate
from .compare import compare
from .demo import demo
from .doctor import doctor
from .export import export
from .failures import closed_pipe, sentence
from .generate import generate
from .listing import drafters, models
from .streams import end_output, settle_streams
from .train.app import train
from .tune.design import design
from .tune.policies import policies
from .tune.simulate import simulate
from .tune.trace import trace
from .tune.tune import tune

FAILED = 1
REFUSED = 2
INTERRUPTED = 130
CLOSED_PIPE = 141

app = typer.Typer(
    help="Makes language models write faster without changing a probability of what they write.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (generate, compare, bench, calibrate, tune, design, demo, trace, simulate, models, drafters, doctor):
    app.command()(command)
app.add_typer(policies)
app.add_typer(train)
app.add_typer(export)


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
    commands: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    called = ""
    for name in (argument for argument in arguments if not argument.startswith("-")):
        called = f"{called} {name}".lstrip()
        if name not in commands:
            return f"unknown command {called!r}; known: {', '.join(commands)}"
        command = commands[name]
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


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=lambda wanted: _version(wanted), is_eager=True),
    ] = False,
) -> None:
    pass


def _version(wanted: bool) -> None:
    if wanted:
        print(version("forerun"))
        raise typer.Exit
