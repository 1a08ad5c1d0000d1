"""How another engine may draft: one setting of its own knobs, and which of them are tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from ...errors import UnsupportedOption

ENGINES = ("vllm", "llama.cpp", "transformers")


@final
@dataclass(frozen=True, slots=True)
class Knobs:
    """settings are in the engine's own words. place: among ties the lowest wins.

    remembers: it drafts from earlier answers, so no prompt may be asked twice of one server. family: equal for settings
    that differ in their length alone.
    """

    method: str
    name: str
    place: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    remembers: bool = False
    family: str = ""

    @property
    def rank(self) -> tuple[int, ...]:
        return (self.place,)


OFF = Knobs("off", "off", 0)


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """Which methods to try: all that there are if empty. Draft models are tried where there are some."""

    methods: tuple[str, ...] = ()
    draft_models: tuple[str, ...] = ()

    def of(self, known: tuple[str, ...], engine: str) -> tuple[str, ...]:
        """Raises UnsupportedOption on a method that the engine hasn't."""
        for name in self.methods:
            if name not in known:
                raise UnsupportedOption(f"unknown method {name!r} to tune {engine} by; known: {', '.join(known)}")
        return self.methods or known
