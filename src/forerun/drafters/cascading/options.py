"""Which of several drafters an option is for."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Series
from typing import Any

from ...errors import UnsupportedOption
from ..registry import DRAFTERS


def shared_out(names: Series[str], options: Mapping[str, Any], by: str = "cascade") -> dict[str, dict[str, Any]]:
    """Each drafter's options. NAME_OPTION says whose it is. Raises UnsupportedOption where that can't be told.

    by: the drafter that has them as its parts. One of them that passes options on gets those that begin with its name.
    """
    entries = {name: DRAFTERS.entry(name) for name in names}
    shared: dict[str, dict[str, Any]] = {name: {} for name in names}
    passing = [name for name, entry in entries.items() if entry.passes_options_on]
    for option, value in options.items():
        named = {f"{name}_{own}": (name, own) for name, entry in entries.items() for own in entry.options}
        owners = [name for name, entry in entries.items() if option in entry.options]
        if option in named:
            name, own = named[option]
            shared[name][own] = value
        elif whose := [name for name in passing if option.startswith(f"{name}_")]:
            shared[whose[0]][option.removeprefix(f"{whose[0]}_")] = value
        elif len(owners) == 1:
            shared[owners[0]][option] = value
        elif owners:
            raise UnsupportedOption(
                f"both {' and '.join(owners)} have an option {option!r}; write {owners[0]}_{option} or {owners[1]}_{option}"
            )
        elif passing:
            shared[passing[0]][option] = value
        else:
            known = ", ".join(own for entry in entries.values() for own in entry.options)
            raise UnsupportedOption(
                f"drafter {by!r} of {', '.join(names)} has no option {option!r}; its options: of, {known}"
            )
    return shared
