"""Methods by name, with their options, for the command line, system files and error messages."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeVar, final

from ..errors import UnsupportedOption
from .method_source import Written, methods_written_in

B = TypeVar("B", bound=Callable[..., Any])


class Entry(ABC, Generic[B]):
    """A method; the keyword-only arguments of its build function are its options."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def source(self) -> str: ...

    @property
    @abstractmethod
    def build(self) -> B: ...

    @property
    @abstractmethod
    def summary(self) -> str: ...

    @property
    @abstractmethod
    def options(self) -> Mapping[str, inspect.Parameter]: ...

    @property
    @abstractmethod
    def passes_options_on(self) -> bool:
        """Whether the method wraps another one and passes on the options that it doesn't know."""


@final
@dataclass(frozen=True, slots=True)
class Registered(Entry[B]):
    """A method whose module was imported."""

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
        return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(self.build).parameters.values())


@final
@dataclass(frozen=True, slots=True)
class Known(Entry[B]):
    """A method of a module that is imported when the method is built."""

    written: Written

    @property
    def name(self) -> str:
        return self.written.name

    @property
    def source(self) -> str:
        return self.written.source

    @property
    def build(self) -> B:
        build: B = getattr(import_module(self.written.module), self.written.function)
        return build

    @property
    def summary(self) -> str:
        return self.written.summary

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        return self.written.options

    @property
    def passes_options_on(self) -> bool:
        return self.written.passes_options_on


class Registry(Generic[B]):
    """The methods of one kind, by name.

    package: its modules' methods are known from their source, and imported when they are built.
    """

    def __init__(self, kind: str, package: str = "") -> None:
        self.kind = kind
        self._package = package
        self._entries: dict[str, Registered[B]] = {}

    def __call__(self, name: str, source: str) -> Callable[[B], B]:
        """Register the decorated build function. source: authors, arXiv id, section."""

        def register(build: B) -> B:
            own = bool(self._package) and str(build.__module__).startswith(f"{self._package}.")
            if name in self._entries or (not own and name in self._known):
                raise self._taken(name)
            self._entries[name] = Registered(name, build, source)
            return build

        return register

    @cached_property
    def _known(self) -> Mapping[str, Known[B]]:
        known: dict[str, Known[B]] = {}
        for one in methods_written_in(self._package) if self._package else ():
            if one.name in known:
                raise self._taken(one.name)
            known[one.name] = Known(one)
        return known

    @property
    def _all(self) -> Mapping[str, Entry[B]]:
        return {**self._known, **self._entries}  # in this order: reading may import, and so register

    def _taken(self, name: str) -> ValueError:
        return ValueError(f"{self.kind} {name!r} is registered already")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._all))

    def entry(self, name: str) -> Entry[B]:
        found = self._all.get(name)
        if found is None:
            raise UnsupportedOption(f"unknown {self.kind} {name!r}; known: {', '.join(self.names)}")
        return found

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
