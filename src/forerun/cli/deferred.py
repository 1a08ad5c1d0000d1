"""Commands that are imported when they are called: the help of all of them, or the call of one, waits for none."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, final

import typer
from typer.core import TyperCommand, TyperGroup


@final
class Deferred(TyperCommand):
    """Stands for a command, or a group of some, by its name and summary.

    place: where it is, as "module:function" of forerun.cli; what is found there is a function or a group.
    """

    def __init__(self, name: str, place: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._called, self._place = name, place

    def opened(self) -> Any:
        """The command itself, whose module is imported now."""
        module, _, name = self._place.partition(":")
        found: Any = getattr(import_module(f".{module}", __package__), name)
        if isinstance(found, TyperGroup):
            return found
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False)
        alone.command(self._called)(found)
        return typer.main.get_command(alone)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.opened().make_context(info_name, args, parent, **extra)


def opened(command: Any) -> Any:
    """The command that another one may stand for."""
    return command.opened() if isinstance(command, Deferred) else command


def group(named: typer.Typer, commands: Mapping[str, tuple[str, str]]) -> TyperGroup:
    """A group with these commands in this order: name -> place and summary of a Deferred."""
    made = typer.main.get_group(named)
    for name, (place, summary) in commands.items():
        made.add_command(Deferred(name, place, summary))
    return made
