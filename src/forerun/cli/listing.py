"""forerun models, drafters (and policies): what there is, with its options and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ..core.registry import Entry
from ..errors import ModelNotFound
from ..families.table import REFUSED, RUNS, UNMADE, WRONG, read_table
from .flags import spelling
from .method import KINDS
from .shared_options import AsJson
from .terminal import note, show, show_json, show_table
from .values import words

RESULTS = {RUNS: "yes", REFUSED: "no", UNMADE: "not tried", WRONG: "no"}


def models(
    words: Annotated[
        str, typer.Argument(metavar="[WORDS]", help="Only families whose name, result or reason contains these words.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the bundled models, and of every decoder of transformers whether it runs, and if not why."""
    from ..models.files.locate import BUNDLED

    bundled = [{"name": name, "package": package, "installed": _installed(name)} for name, package in BUNDLED.items()]
    table = read_table()
    families = table.matching(words)
    if as_json:
        versions = {"transformers": table.transformers, "installed": version("transformers")}
        show_json({"bundled": bundled, **versions, "date": table.date, "families": families})
        return
    if not words:
        rows = [(str(one["name"]), str(one["package"]), "yes" if one["installed"] else "no") for one in bundled]
        show_table(("bundled model", "package", "installed"), rows)
        show("Also: a directory in Hugging Face's format, a GGUF file, or a name on the hub.")
    show_table(
        ("family", "runs", "runner", "what to know"),
        [(name, RESULTS[one["result"]], ", ".join(one["runners"]), _result_of(one)) for name, one in families.items()],
        f"decoders of transformers {table.transformers}, each tried as a small random model ({table.date})",
    )
    running = sum(one["result"] == RUNS for one in families.values())
    show(f"{running} of {len(families)} run. Every model is checked again when it is loaded.")
    if table.stale:
        note(table.stale)


def _result_of(family: Mapping[str, Any]) -> str:
    """Why it doesn't run, or what it lacks."""
    if family["reason"]:
        return str(family["reason"])
    lacks = [] if family["skipping"] else ["no layer can be left out (drafter self)"]
    return "; ".join([*lacks, *(f"with {name} refused" for name in family["refused"])])


def drafters(as_json: AsJson = False) -> None:
    """List the drafters with their options."""
    listed("drafter", as_json)


def listed(kind: str, as_json: bool) -> None:
    """Show the methods of a kind."""
    registry = KINDS[kind]
    entries = [registry.entry(name) for name in registry.names]
    if as_json:
        show_json([_described(entry) for entry in entries])
        return
    rows = [
        (entry.name, entry.summary, "\n".join(map(_option_line, _options(entry))) or "none", entry.source)
        for entry in entries
    ]
    show_table((kind, "what it does", "options", "source"), rows)


def _described(entry: Entry[Any]) -> dict[str, Any]:
    return {"name": entry.name, "summary": entry.summary, "options": _options(entry), "source": entry.source}


def _options(entry: Entry[Any]) -> list[dict[str, Any]]:
    options = [
        {
            "name": name,
            "type": words(option.annotation),
            "required": required,
            "default": None if required else option.default,
        }
        for name, option in entry.options.items()
        for required in (option.default is option.empty,)
    ]
    passed_on = {"name": "...", "type": "the options of the one inside", "required": False, "default": None}
    return [*options, passed_on] if entry.passes_options_on else options


def _option_line(option: dict[str, Any]) -> str:
    if option["name"] == "...":
        return str(option["type"])
    default = "needed" if option["required"] else f"default {_shown(option['default'])}"
    return f"{spelling(option['name'])}: {option['type']} ({default})"


def _shown(default: Any) -> str:
    return "none" if default in (None, (), "") else str(default)


def _installed(name: str) -> bool:
    from ..models.files.locate import locate

    try:
        locate(name)
    except ModelNotFound:
        return False
    return True
