"""Methods as the user names them: a drafter with its default settings, or a system's file (forerun.engine.system.file).

"plain" is plain decoding and is always measured; "default" is what forerun generate does.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..drafters.registry import DRAFTERS
from ..engine.engine import Engine
from ..engine.methods import DEFAULT_DRAFTER, policy_for
from ..engine.system.file import read_system
from ..engine.system.value import System
from ..errors import UnsupportedOption
from .backend import ForerunBackend

PLAIN, DEFAULT = "plain", "default"


def read_methods(names: Sequence[str]) -> list[System]:
    """The methods of a list like ["lookup", "mine.json"], plain decoding first. Raises UnsupportedOption, ValueError."""
    methods = [System(PLAIN, "none")]
    for name in names:
        if name.endswith(".json"):
            methods.append(read_system(name))
        elif name == DEFAULT:
            methods.append(System(DEFAULT, DEFAULT_DRAFTER, policy=policy_for(DEFAULT_DRAFTER, None)))
        elif name not in (PLAIN, "none"):
            if name not in DRAFTERS.names:
                known = ", ".join((PLAIN, DEFAULT, *(known for known in DRAFTERS.names if known != "none")))
                raise UnsupportedOption(
                    f"unknown method {name!r}; known: {known}, or a JSON file that describes a system"
                )
            methods.append(System(name, name, policy=policy_for(name, None)))
    return methods


def backend_of(method: System, engine: Engine, generation_config: bool = True) -> ForerunBackend:
    """The method on engine's model, with or without what its generation config asks for.

    Raises UnsupportedOption on an option that the method doesn't have, or a model other than its own.
    """
    return ForerunBackend(method.name, PLAIN, method.method_on(engine), method.method(), generation_config)
