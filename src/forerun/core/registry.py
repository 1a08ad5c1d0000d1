"""Methods by name, with their options, for the command line, system files and error messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import UnsupportedOption

B = TypeVar("B", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Entry(Generic[B]):
    """A registered build function; its keyword-only arguments are the method's options."""

    name: str
    build: B
    source: str

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.build) or "").split("\n")[0]

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        parameters = inspect.signature(self.build, eval_str=True).parameters
        return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}

    @property
    def passes_options_on(self) -> bool:
        """Whether the method wraps another one and passes on the options that it doesn't know."""
        return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(self.build).parameters.values())


class Registry(Generic[B]):
    """The methods of one kind, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry[B]] = {}

    def __call__(self, name: str, source: str) -> Callable[[B], B]:
        """Register the decorated build function. source: authors, arXiv id, section."""

        def register(build: B) -> B:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered already")
            self._entries[name] = Entry(name, build, source)
            return build

        return register

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))

    def entry(self, name: str) -> Entry[B]:
        if name not in self._entries:
            raise UnsupportedOption(f"unknown {self.kind} {name!r}; known: {', '.join(self.names)}")
        return self._entries[name]

    def check(self, name: str, options: Mapping[str, object]) -> Entry[B]:
        """The entry, after checking that it has every given option and that required options are given."""
        entry = self.entry(name)
        for option in options:
            if option not in entry.options and not entry.passes_options_on:
                known = ", ".join(entry.options) or "none"
                raise UnsupportedOption(f"{self.kind} {name!r} has no option {option!r}; its options: {known}")
        for option, parameter in entry.options.items():
            if parameter.default is parameter.empty and option not in options:
                raise UnsupportedOption(f"{self.kind} {name!r} needs option {option!r}: {entry.summary}")
        return entry
