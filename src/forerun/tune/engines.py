"""The engines of drafters and candidates, on one loaded model; a draft model or an adapter is opened only once."""

from __future__ import annotations

from typing import final

from ..drafters.cascade import cascade_of
from ..drafters.guessed import guessed_by
from ..engine.engine import Engine
from .branching import drafter_of
from .candidates import BRANCHED, GUESSED, Candidate, DrafterConfig


@final
class Engines:
    def __init__(self, plain: Engine) -> None:
        self.plain = plain
        self._ways: dict[str, Engine] = {}
        self._candidates: dict[str, Engine] = {}

    def of_config(self, config: DrafterConfig) -> Engine:
        """An engine with this drafter and the default policy. Raises what Engine.using raises."""
        if config.name not in self._ways:
            self._ways[config.name] = self._opened(config)
        return self._ways[config.name]

    def of(self, candidate: Candidate) -> Engine:
        """The same engine each time, so that a policy keeps what it learnt."""
        if candidate.name not in self._candidates:
            drafter = self.of_config(candidate.config).drafter
            self._candidates[candidate.name] = self.plain.using(
                drafter, candidate.policy, policy_options=candidate.policy_options
            )
        return self._candidates[candidate.name]

    def _opened(self, config: DrafterConfig) -> Engine:
        if config.method in BRANCHED:
            return self.plain.using(drafter_of(config, self.of_config(config.parts[0]).drafter))
        if not config.parts:
            return self.plain.using(config.drafter, drafter_options=config.options)
        copying, other = (self.of_config(part).drafter for part in config.parts)
        if config.method == GUESSED:
            return self.plain.using(guessed_by(other, copying, config.parts[1].drafter))
        return self.plain.using(cascade_of((copying, other), [part.drafter for part in config.parts]))
