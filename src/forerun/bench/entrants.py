"""Methods as the user names them: a drafter with its default settings, or a system's file (forerun.engine.system.file).

"plain" is plain decoding and always takes part; "default" is what forerun generate does.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..drafters.base import DRAFTERS
from ..engine.engine import Engine
from ..engine.methods import DEFAULT_DRAFTER, DEFAULT_POLICY
from ..engine.system.file import read_system
from ..engine.system.value import System
from ..errors import UnsupportedOption
from .contestant import Ours

PLAIN, DEFAULT = "plain", "default"


def read_entrants(names: Sequence[str]) -> list[System]:
    """The methods of a list like ["lookup", "mine.json"], plain decoding first. Raises UnsupportedOption, ValueError."""
    entrants = [System(PLAIN, "none")]
    for name in names:
        if name.endswith(".json"):
            entrants.append(read_system(name))
        elif name == DEFAULT:
            entrants.append(System(DEFAULT, DEFAULT_DRAFTER, policy=DEFAULT_POLICY))
        elif name not in (PLAIN, "none"):
            if name not in DRAFTERS.names:
                known = ", ".join((PLAIN, DEFAULT, *(known for known in DRAFTERS.names if known != "none")))
                raise UnsupportedOption(
                    f"unknown method {name!r}; known: {known}, or a JSON file that describes a system"
                )
            entrants.append(System(name, name))
    return entrants


def contestant_of(entrant: System, engine: Engine, generation_config: bool = True) -> Ours:
    """The method on engine's model, with what its generation config asks for or without.

    Raises UnsupportedOption on an option that the method has not, or another model than its own.
    """
    return Ours(entrant.name, PLAIN, entrant.method_on(engine), entrant.method(), generation_config)
