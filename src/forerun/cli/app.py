"""The commands under one name. What is refused gets one sentence on stderr and exit status 2."""

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
from .generate import generate
from .listing import drafters, models, policies

REFUSED = 2
INTERRUPTED = 130

app = typer.Typer(
    help="Makes language models write faster without changing a probability of what they write.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (generate, compare, bench, calibrate, demo, models, drafters, policies):
    app.command()(command)


def main() -> None:
    """The entry point."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit status."""
    try:
        status = app(args=list(arguments) or ["--help"], prog_name="forerun", standalone_mode=False)
        return int(status or 0)
    except typer.TyperException as error:
        message = _unknown(arguments) or error.format_message()
    except (ForerunError, ValueError) as error:
        message = str(error)
    except typer.Abort:
        return INTERRUPTED
    print(f"forerun: {' '.join(message.split())}", file=sys.stderr)
    return REFUSED


def _unknown(arguments: Sequence[str]) -> str | None:
    """A sentence with the commands or flags that there are, if one of the arguments should be one and isn't."""
    commands: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    if name is None:
        return None
    if name not in commands:
        return f"unknown command {name!r}; known: {', '.join(commands)}"
    parameters = commands[name].params
    known = [written for one in parameters for written in (*one.opts, *one.secondary_opts) if written.startswith("--")]
    for argument in arguments:
        written = argument.partition("=")[0]
        if written.startswith("--") and written not in known:
            return f"unknown option {written}; known: {', '.join(known)}"
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
