"""From a flag's text to the value that a method's option is annotated with, and back to words for the reader."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from ..errors import UnsupportedOption

SWITCHES = {"yes": True, "no": False, "true": True, "false": False}


def parse(text: str | bool, annotation: Any, flag: str) -> Any:
    """The value of a flag. Raises UnsupportedOption where the text does not fit the annotation."""
    wanted = _without_none(annotation)
    if wanted in (str, Any) or isinstance(text, bool):
        return text
    if wanted is Path:
        return Path(text)
    try:
        if wanted is int:
            return int(text)
        if wanted is float:
            return float(text)
        if wanted is bool and text.lower() in SWITCHES:
            return SWITCHES[text.lower()]
        if get_origin(wanted) is tuple and get_args(wanted) == (int, ...):
            return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise UnsupportedOption(f"{flag} takes {words(annotation)}, got {text!r}") from error
    if wanted is bool:
        raise UnsupportedOption(f"{flag} takes {words(annotation)}, got {text!r}")
    raise TypeError(f"option {flag} is annotated {annotation}, which the command line can't read")


def at_least(least: int, **values: int | None) -> None:
    """Raise ValueError on a flag's value that is smaller; None was not given."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, got {value}")


def words(annotation: Any) -> str:
    """What to write for an option of this type."""
    wanted = _without_none(annotation)
    if get_origin(wanted) is tuple:
        return "whole numbers with commas"
    names = {int: "a whole number", float: "a number", str: "a name", bool: "yes or no", Path: "a path"}
    return names.get(wanted, "a name or a path")


def is_switch(annotation: Any) -> bool:
    return _without_none(annotation) is bool


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else Any
    return annotation
