"""Tables of the site that are made from the program itself: methods, commands and request options.

A page names one in a comment, `<!-- made here: drafters -->`, and the build puts it there. See `hooks` in mkdocs.yml.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

import typer
from typer.core import TyperGroup

from forerun.cli import run
from forerun.cli.app import app
from forerun.engine.option_table import options_table

ROOT = app
PLACE = re.compile(r"<!-- made here: (.+?) -->")
PANELS = {"argument": "Arguments", "option": "Options"}
ARXIV = re.compile(r"(?:arXiv )?\b(\d{4}\.\d{5})\b")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page. Raises KeyError on a table that isn't made here."""
    return PLACE.sub(lambda place: TABLES[place[1]](), markdown)


def methods(kind: str) -> str:
    """A section for each method, from what `forerun drafters --json` tells."""
    with redirect_stdout(io.StringIO()) as told:
        run([kind, "--json"])
    return "\n\n".join(_method(one) for one in json.loads(told.getvalue()))


def _method(one: Mapping[str, Any]) -> str:
    rows = [(f"`{option['name']}`", option["type"], _default(option)) for option in one["options"]]
    options = table(("option", "type", "default"), rows) if rows else "No options."
    return f"## {one['name']}\n\n{plain(one['summary'])}\n\nSource: {linked(one['source'])}\n\n{options}"


def _default(option: Mapping[str, Any]) -> str:
    if option["required"]:
        return "needed"
    return "none" if option["default"] in (None, "", []) else f"`{json.dumps(option['default'])}`"


def commands() -> str:
    """A section for each command that runs something, from its own help."""
    return "\n\n".join(_command(name, one) for name, one in leaves("forerun", ROOT))


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The commands that run something with their whole names, those under a common name included."""
    context = command.make_context(name, [], resilient_parsing=True)
    found = context.command
    group = isinstance(found, TyperGroup)
    if not group or (found.invoke_without_command and command is not ROOT):
        yield name, found
    if group:
        for inner in found.list_commands(context):
            yield from leaves(f"{name} {inner}", found.get_command(context, inner))


def _command(name: str, command: Any) -> str:
    context = typer.Context(command)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    panels: dict[str, list[tuple[str, ...]]] = {}
    for one in command.params:
        if not one.hidden:
            panels.setdefault(one.rich_help_panel or PANELS[one.param_type_name], []).append(_parameter(one, context))
    tables = [table((panel, "what it does", "default"), rows) for panel, rows in panels.items()]
    return "\n\n".join([f"## {name}", plain(command.help), f"```\n{usage}\n```", *tables])


def _parameter(one: Any, context: Any) -> tuple[str, ...]:
    written = one.name if one.param_type_name == "argument" else " ".join((*one.opts, *one.secondary_opts))
    kind = "" if vars(one).get("is_flag") else f" {one.display_type(context)}"
    default = "needed" if one.required else _shown(one)
    return f"`{written}{kind}`", plain(one.help), default


def _shown(one: Any) -> str:
    """The default as the help shows it."""
    if isinstance(one.show_default, str):
        return one.show_default
    if one.default is True:
        return "on"
    return f"`{one.default}`" if one.show_default and one.default not in (None, "", False, (), []) else ""


def plain(text: str | None) -> str:
    """Help as Markdown: what it writes in brackets or with stars stays as it is, and code stays code."""
    words = " ".join((text or "").replace("\b", "").split())
    return re.sub(r"`[^`]*`|[<>*_\[\]|]", lambda found: found[0] if len(found[0]) > 1 else f"\\{found[0]}", words)


def linked(source: str) -> str:
    """A source whose arXiv numbers are links."""
    return ARXIV.sub(lambda found: f"[arXiv {found[1]}](https://arxiv.org/abs/{found[1]})", source)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES: Mapping[str, Callable[[], str]] = {
    "drafters": lambda: methods("drafters"),
    "policies": lambda: methods("policies"),
    "commands": commands,
    "request options": options_table,
}
