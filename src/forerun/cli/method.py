"""A drafter and a policy, chosen by flags.

The flags come from the registered methods' own options. A flag goes to the chosen drafter or policy that has the option;
where both have it, or the name means something else already, --drafter-NAME and --policy-NAME say which is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.registry import Entry, Registry
from ..drafters.registry import DRAFTERS
from ..engine.methods import policy_for
from ..errors import UnsupportedOption
from ..policies.registry import POLICIES
from .flags import REQUEST, flag, spelling
from .values import is_switch, parse, words

KINDS: Mapping[str, Registry[Callable[..., Any]]] = {"drafter": DRAFTERS, "policy": POLICIES}


@dataclass(frozen=True, slots=True)
class Method:
    """A drafter and a policy with their options."""

    drafter: str
    policy: str
    drafter_options: Mapping[str, Any]
    policy_options: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"{_described(self.drafter, self.drafter_options)}, {_described(self.policy, self.policy_options)}"


def method_flags(reserved: Iterable[str] = (), kinds: Iterable[str] = tuple(KINDS)) -> list[inspect.Parameter]:
    """A flag for each option of each registered method of some kinds; reserved: names that mean something else there."""
    known = {kind: _by_option(KINDS[kind]) for kind in kinds}
    taken = {*REQUEST, *KINDS, *reserved}
    flags: list[inspect.Parameter] = []
    for name in dict.fromkeys(name for options in known.values() for name in options):
        owners = {kind: options[name] for kind, options in known.items() if name in options}
        if name not in taken:
            flags.append(_method_flag("either", name, [entry for entries in owners.values() for entry in entries]))
        if name in taken or len(owners) > 1:
            flags += [_method_flag(kind, name, entries) for kind, entries in owners.items()]
    return flags


def method_of(drafter: str, policy: str | None, given: Mapping[str, Any]) -> Method:
    """The method that the flags describe; policy None: the one that goes with the drafter.

    Raises UnsupportedOption on an unknown name, a foreign flag, a bad value.
    """
    policy = policy_for(drafter, policy)
    chosen: dict[str, Entry[Any]] = {"drafter": DRAFTERS.entry(drafter), "policy": POLICIES.entry(policy)}
    options: dict[str, dict[str, Any]] = {"drafter": {}, "policy": {}}
    for key, text in given.items():
        kind, separator, name = key.partition("__")
        if separator and text is not None:
            written = spelling(_flag_name(kind, name))
            owner, annotation = _owner(chosen, kind, name, written)
            options[owner][name] = parse(text, annotation, written)
    return Method(drafter, policy, options["drafter"], options["policy"])


def _owner(chosen: Mapping[str, Entry[Any]], kind: str, name: str, written: str) -> tuple[str, Any]:
    """Which of the two has the option, and what it is annotated with."""
    asked = chosen if kind == "either" else {kind: chosen[kind]}
    found = [
        (owner, annotation)
        for owner, entry in asked.items()
        if (annotation := annotation_of(entry, KINDS[owner], name)) is not None
    ]
    names = [f"{owner} {entry.name!r}" for owner, entry in asked.items()]
    if not found:
        known = [spelling(option) for entry in asked.values() for option in entry.options]
        raise UnsupportedOption(f"{written} is no option of {' or '.join(names)}; theirs: {', '.join(known) or 'none'}")
    if len(found) > 1:
        clear = " or ".join(spelling(_flag_name(owner, name)) for owner, _ in found)
        raise UnsupportedOption(f"{written} is an option of {' and of '.join(names)}; write {clear}")
    return found[0]


def annotation_of(entry: Entry[Any], registry: Registry[Any], name: str) -> Any:
    """The annotation of an option of the entry, or of a method that it wraps; None where there is no such option."""
    wrapped = [registry.entry(other) for other in registry.names] if entry.passes_options_on else []
    for owner in (entry, *wrapped):
        if name in owner.options:
            return owner.options[name].annotation
    return None


def _by_option(registry: Registry[Any]) -> dict[str, list[Entry[Any]]]:
    """Option name -> the methods that have it."""
    found: dict[str, list[Entry[Any]]] = {}
    for entry in map(registry.entry, registry.names):
        for name in entry.options:
            found.setdefault(name, []).append(entry)
    return found


def _method_flag(kind: str, name: str, entries: list[Entry[Any]]) -> inspect.Parameter:
    annotations = [entry.options[name].annotation for entry in entries]
    type_ = bool if all(map(is_switch, annotations)) else str
    help = f"Of {', '.join(dict.fromkeys(entry.name for entry in entries))}: {words(annotations[0])}."
    return flag(f"{kind}__{name}", type_ | None, None, "Options of the method", help, _flag_name(kind, name))


def _flag_name(kind: str, name: str) -> str:
    return name if kind == "either" else f"{kind}_{name}"


def _described(name: str, options: Mapping[str, Any]) -> str:
    values = {key: ",".join(map(str, value)) if isinstance(value, tuple) else value for key, value in options.items()}
    return " ".join([name, *(f"{key}={value}" for key, value in values.items())])
