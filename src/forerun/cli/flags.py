"""Flags that are read off what they set, and the flags of a request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer

from ..engine.generation_config.defaults import OPTIONS, OPTIONS_IF_DRAWN
from ..engine.options import Options
from ..engine.request import RequestOptions, option_help

R = TypeVar("R")

# functions, and ids that a reader of text doesn't know
UNWRITTEN = ("processors", "stop_token_ids")
# whose value is the text of a file
FILES = {
    "json_schema": "Write JSON that fits the schema in this file.",
    "grammar": "Write a text of the grammar in this file, in Lark's form as llguidance has it.",
}
REQUEST = {name: help for name, help in {**option_help(), **FILES}.items() if name not in UNWRITTEN}
# what these are called, if not that
WRITTEN = {"do_sample": "sample"}
# what a checkpoint's generation config may say where nothing is given
OPEN = frozenset({*OPTIONS.values(), *OPTIONS_IF_DRAWN, "do_sample"})


def takes(*flags: inspect.Parameter) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command these flags beside its own; they arrive as keyword arguments."""

    def extend(command: Any) -> Any:
        own = inspect.signature(command, eval_str=True).parameters.values()
        command.__signature__ = inspect.Signature([*(p for p in own if p.kind is not p.VAR_KEYWORD), *flags])
        return command

    return extend


def flag(
    key: str, kind: Any, default: Any, panel: str, help: str, name: str | None = None, shown: str | bool = True
) -> inspect.Parameter:
    """A flag that arrives as keyword argument `key`; name is what it is called, if not that, shown the default in help."""
    written = spelling(name or key)
    if kind in (bool, bool | None) and default is not False:
        written = f"{written}/--no-{written.removeprefix('--')}"
    option = typer.Option(written, help=help, rich_help_panel=panel, show_default=shown)
    return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def recipe_flags(recipe: Any, help: Mapping[str, str]) -> tuple[inspect.Parameter, ...]:
    """A flag for each field of a recipe's class that help has a word for; it has a default."""
    told = (one for one in fields(recipe) if one.name in help)
    return tuple(flag(one.name, type(one.default), one.default, "Recipe", help[one.name]) for one in told)


def recipe_of(recipe: Callable[..., R], given: Mapping[str, Any]) -> R:
    """The recipe among a command's keyword arguments."""
    kind: Any = recipe
    return recipe(**{one.name: given[one.name] for one in fields(kind) if one.name in given})


def spelling(name: str) -> str:
    return "--" + name.replace("_", "-")


def request_flags(without: Collection[str] = (), only: Collection[str] = tuple(REQUEST)) -> list[inspect.Parameter]:
    """A flag for each field of Options that can be written on a command line; None is for those left open."""
    kinds = {
        **get_type_hints(Options, localns={"Tensor": Any}),
        **dict.fromkeys(FILES, Path | None),
        "stop": list[str],
        "choice": list[str] | None,
        "prediction": str | None,
    }
    defaults = {field.name: field.default for field in fields(Options)}
    return [
        _open_flag(name, kinds[name], default)
        if name in OPEN
        else flag(name, kinds[name], default, "Request", REQUEST[name], WRITTEN.get(name))
        for name, default in defaults.items()
        if name in only and name not in without
    ]


def _open_flag(name: str, kind: Any, default: Any) -> inspect.Parameter:
    shown = f"the checkpoint's, else {default}" if kind in (int, float) else False
    return flag(name, kind | None, None, "Request", REQUEST[name], WRITTEN.get(name), shown)


def request_of(given: Mapping[str, Any]) -> RequestOptions:
    """The request's options among a command's keyword arguments. Raises ValueError on a file of no use."""
    request = {name: value for name, value in given.items() if name in REQUEST and value is not None}
    return cast(RequestOptions, {name: _text_of(value) if name in FILES else value for name, value in request.items()})


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{file} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} holds no UTF-8 text ({error.reason} at byte {error.start})") from error
