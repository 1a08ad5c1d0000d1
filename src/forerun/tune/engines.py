"""The engines of ways and candidates, on one loaded model; a draft model or an adapter is opened once, whoever uses it."""

from __future__ import annotations

from typing import final

from ..drafters.hybrid import Hybrid
from ..engine.engine import Engine
from .branching import drafter_of
from .candidates import BRANCHED, Candidate, Way


@final
class Engines:
    def __init__(self, plain: Engine) -> None:
        self.plain = plain
        self._ways: dict[str, Engine] = {}
        self._candidates: dict[str, Engine] = {}

    def of_way(self, way: Way) -> Engine:
        """Drafts that way, with the default policy. Raises what Engine.using raises."""
        if way.name not in self._ways:
            self._ways[way.name] = self._opened(way)
        return self._ways[way.name]

    def of(self, candidate: Candidate) -> Engine:
        """The same engine each time, so that a policy keeps what it learnt."""
        if candidate.name not in self._candidates:
            drafter = self.of_way(candidate.way).drafter
            self._candidates[candidate.name] = self.plain.using(
                drafter, candidate.policy, policy_options=candidate.policy_options
            )
        return self._candidates[candidate.name]

    def _opened(self, way: Way) -> Engine:
        if way.method in BRANCHED:
            return self.plain.using(drafter_of(way, self.of_way(way.parts[0]).drafter))
        return self._hybrid(way) if way.parts else self.plain.using(way.drafter, drafter_options=way.options)

    def _hybrid(self, way: Way) -> Engine:
        first, then = (self.of_way(part).drafter for part in way.parts)
        return self.plain.using(lambda target: Hybrid(first(target), then(target)))
