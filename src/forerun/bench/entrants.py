"""Methods as the user names them: a drafter with its default settings, or a JSON file that describes a system.

    {"name": "exit8", "drafter": {"name": "self", "exit_layer": 8}, "policy": {"name": "threshold", "confidence": 0.6}}

name and policy may be left out. "plain" is plain decoding and always takes part; "default" is what forerun generate does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..drafters.base import DRAFTERS
from ..engine import Engine
from ..errors import UnsupportedOption
from ..methods import DEFAULT_DRAFTER, DEFAULT_POLICY
from .contestant import Ours

PLAIN, DEFAULT = "plain", "default"
KEYS = ("name", "drafter", "policy")


@dataclass(frozen=True, slots=True)
class Entrant:
    """A drafter and a policy, each by name with its options; policy None is the drafter's default."""

    name: str
    drafter: str
    drafter_options: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None
    policy_options: Mapping[str, Any] = field(default_factory=dict)

    def contestant(self, engine: Engine) -> Ours:
        """The method on engine's model. Raises UnsupportedOption on an unknown name or option."""
        options: dict[str, Any] = {"drafter_options": self.drafter_options, "policy_options": self.policy_options}
        if self.policy is not None:
            options["policy"] = self.policy
        return Ours(self.name, PLAIN, engine.using(self.drafter, **options), self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        described: dict[str, Any] = {"drafter": {"name": self.drafter, **self.drafter_options}}
        if self.policy is not None:
            described["policy"] = {"name": self.policy, **self.policy_options}
        return described


def read_entrants(names: Sequence[str]) -> list[Entrant]:
    """The methods of a list like ["lookup", "mine.json"], plain decoding first. Raises UnsupportedOption, ValueError."""
    entrants = [Entrant(PLAIN, "none")]
    for name in names:
        if name.endswith(".json"):
            entrants.append(_from_file(Path(name)))
        elif name == DEFAULT:
            entrants.append(Entrant(DEFAULT, DEFAULT_DRAFTER, policy=DEFAULT_POLICY))
        elif name not in (PLAIN, "none"):
            if name not in DRAFTERS.names:
                known = ", ".join((PLAIN, DEFAULT, *(known for known in DRAFTERS.names if known != "none")))
                raise UnsupportedOption(
                    f"unknown method {name!r}; known: {known}, or a JSON file that describes a system"
                )
            entrants.append(Entrant(name, name))
    return entrants


def _from_file(path: Path) -> Entrant:
    example = '{"drafter": {"name": "lookup"}, "policy": {"name": "fixed", "k": 8}}'
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"can't read the system file {path}: {error}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}); a system looks like {example}") from error
    if not isinstance(data, dict) or "drafter" not in data:
        raise ValueError(f"{path} describes no system; one looks like {example}")
    if unknown := sorted(set(data) - set(KEYS)):
        raise UnsupportedOption(f"{path}: unknown key {unknown[0]!r}; known: {', '.join(KEYS)}")
    drafter, drafter_options = _named_part(path, data["drafter"], "drafter")
    policy, policy_options = _named_part(path, data["policy"], "policy") if "policy" in data else (None, {})
    return Entrant(str(data.get("name", path.stem)), drafter, drafter_options, policy, policy_options)


def _named_part(path: Path, data: Any, kind: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise ValueError(f'{path}: "{kind}" must be an object with a "name", got {json.dumps(data)[:60]}')
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key != "name"}
    return data["name"], options
