"""The functions that a request offers, checked, and what it says about calling them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import UnsupportedOption

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
CHOICES = ("none", "auto", "required")
MOST = 128  # functions, as OpenAI has it


@dataclass(frozen=True, slots=True)
class Tools:
    """Functions in OpenAI's form, for a chat template, and whether and which of them must be called.

    must: the names of which one has to be called; empty where text is an answer, too.
    """

    definitions: tuple[dict[str, Any], ...]
    names: tuple[str, ...]
    must: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """The JSON schema of a call that has to be made: an object with a name and arguments."""
        functions = [one["function"] for one in self.definitions]
        calls = [_call_schema(one) for one in functions if one["name"] in self.must]
        return calls[0] if len(calls) == 1 else {"anyOf": calls}


def tools_of(tools: Any, tool_choice: Any = None) -> Tools | None:
    """What a request's tools and tool_choice come to; None where nothing may be called.

    Raises ValueError that names the field on what is no function, UnsupportedOption where a function is to be called that
    isn't there.
    """
    definitions = tuple(_checked(tool, place) for place, tool in enumerate(_listed(tools)))
    names = tuple(one["function"]["name"] for one in definitions)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"tools holds two functions named {twice!r}; give each a name of its own")
    kind, must = _chosen(tool_choice, names)
    return Tools(definitions, names, must) if names and kind != "none" else None


def _listed(tools: Any) -> Sequence[Any]:
    if tools is None:
        return ()
    if not isinstance(tools, list | tuple):
        raise ValueError(f"tools must be a list of functions, got {type(tools).__name__}")
    if len(tools) > MOST:
        raise ValueError(f"tools must hold at most {MOST} functions, got {len(tools)}")
    return tools


def _checked(tool: Any, place: int) -> dict[str, Any]:
    where = f"tools[{place}]"
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        kind = tool.get("type") if isinstance(tool, Mapping) else tool
        raise ValueError(f'{where} must be an object of type "function", got {ascii(kind)[:60]}')
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise ValueError(f"{where}.function must be an object with a name, got {ascii(function)[:60]}")
    name = function.get("name")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise ValueError(f"{where}.function.name must be 1 to 64 letters, digits, _, - or dots, got {ascii(name)[:80]}")
    for key, type_ in (("description", str), ("parameters", Mapping)):
        if not isinstance(function.get(key), type_ | None):
            kind = "text" if type_ is str else "a JSON schema"
            raise ValueError(f"{where}.function.{key} must be {kind}, got {ascii(function[key])[:60]}")
    # some templates read both without asking whether they are there
    filled = {"description": function.get("description") or "", "parameters": function.get("parameters") or _nothing()}
    return {**tool, "function": {**function, **filled}}


def _nothing() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


def _chosen(choice: Any, names: Sequence[str]) -> tuple[Literal["none", "auto", "must"], tuple[str, ...]]:
    if choice is None or (choice in ("none", "auto") and isinstance(choice, str)):
        return "none" if choice == "none" else "auto", ()
    if isinstance(choice, str) and choice == "required":
        wanted = tuple(names)
    elif (
        isinstance(choice, Mapping) and choice.get("type") == "function" and isinstance(choice.get("function"), Mapping)
    ):
        wanted = (str(choice["function"].get("name")),)
    else:
        raise ValueError(
            f'tool_choice must be {", ".join(map(repr, CHOICES))} or {{"type": "function", "function": {{"name": ...}}}}, '
            f"got {ascii(choice)[:80]}"
        )
    if not wanted or wanted[0] not in names:
        asked, there = ascii(wanted[0]) if wanted else "a call", ", ".join(names) or "no function"
        raise UnsupportedOption(f"tool_choice asks for {asked}, and tools holds {there}")
    return "must", wanted


def _call_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": function["parameters"]},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
