"""The options of a request as a table of the documents."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, get_args

from .options import Options
from .request import option_help, option_hints

HEAD = ("option", "type", "default", "what it does")


def options_table() -> str:
    """Markdown: each option of a request with its type, its default and what it does."""
    defaults = {field.name: field.default for field in fields(Options)}
    help = option_help()
    rows = [
        (f"`{name}`", _types(hint.__origin__), _default(defaults[name]), help[name])
        for name, hint in option_hints().items()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, ("---",) * len(HEAD), *rows)) + "\n"


def _types(hint: Any) -> str:
    """What an option may be; that it may also be None goes without saying."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    return " or ".join(f"`{_named(kind)}`" for kind in kinds)


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else re.sub(r"(\w+\.)+", "", str(kind))


def _default(value: object) -> str:
    return "none" if value in (None, ()) else f"`{value}`"
