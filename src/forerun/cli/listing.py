"""forerun models, drafters (and policies): what there is, with its options and where it comes from."""

from __future__ import annotations

from typing import Any

from ..errors import ModelNotFound
from ..models.locate import BUNDLED, locate
from ..registry import Entry
from ..testing import FAMILIES
from .flags import spelling
from .given import AsJson
from .method import KINDS
from .screen import show, show_json, show_table
from .values import words


def models(as_json: AsJson = False) -> None:
    """List the bundled models and the families that are tested against their own forward."""
    bundled = [{"name": name, "package": package, "installed": _installed(name)} for name, package in BUNDLED.items()]
    if as_json:
        show_json({"bundled": bundled, "families": list(FAMILIES)})
        return
    rows = [(str(one["name"]), str(one["package"]), "yes" if one["installed"] else "no") for one in bundled]
    show_table(("bundled model", "package", "installed"), rows)
    show("Also: a directory in Hugging Face's format, a GGUF file, or a name on the hub.")
    show(
        f"Families tested: {', '.join(FAMILIES)}. Any other decoder is checked when it is loaded, and refused or right."
    )


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
    try:
        locate(name)
    except ModelNotFound:
        return False
    return True
