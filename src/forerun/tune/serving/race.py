"""Heats of an engine's settings: in each, all of them answer the same prompts, at every number of requests at once.

They are compared as forerun's own candidates are (trials.py), at each load and over all loads, which weigh the same. A
candidate drops out where it is certainly slower than the fastest at every load, or fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from ...bench.interleaving import order
from ..journal import Journal
from ..machine import Sample
from ..trials import FEWEST_HEATS, Standings
from .asking import EngineFailed, Prompt
from .field import Field
from .knobs import OFF, Knobs

SCALE = 1_000_000


@final
@dataclass(slots=True)
class Race:
    """by_load: the standings at each number of requests. failed: why a candidate had to leave. texts: digests of answers."""

    by_load: dict[int, Standings[Knobs]]
    failed: dict[str, str] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, contenders: Sequence[Knobs], loads: Sequence[int]) -> Race:
        return cls({load: Standings((OFF, *contenders)) for load in loads})

    @property
    def contenders(self) -> tuple[Knobs, ...]:
        return self._any.candidates

    @property
    def still_in(self) -> list[Knobs]:
        return self._any.still_in

    @property
    def heats(self) -> int:
        return self._any.heats

    def take(self, one: Knobs, load: int, found: dict[str, Any]) -> None:
        self.by_load[load].take({one.name: found["sample"]})
        self.texts.setdefault(one.name, []).extend(found["texts"])

    def leave(self, one: Knobs, reason: str = "") -> None:
        if reason:
            self.failed[one.name] = reason
        for own in self.by_load.values():
            own.out[one.name] = self.heats

    def slow(self) -> list[Knobs]:
        """Those that are certainly slower than the fastest at every load."""
        slow = [own.slow() for own in self.by_load.values()]
        return [one for one in self.still_in if all(one in some for some in slow)]

    def equal_texts(self, one: Knobs) -> float | None:
        """The share of the answers that equal off's; None before the first."""
        pairs = list(zip(self.texts.get(one.name, []), self.texts.get(OFF.name, []), strict=False))
        return sum(mine == other for mine, other in pairs) / len(pairs) if pairs else None

    @property
    def whole(self) -> Standings[Knobs]:
        """Over all loads: tokens in millionths of what off made in a heat at that load, seconds in those that off took."""
        found: Standings[Knobs] = Standings(self.contenders, out=dict(self._any.out))
        for heat in range(self.heats):
            for load, own in self.by_load.items():
                tokens, seconds = self._of_off(load)
                for name, samples in own.samples.items():
                    if heat < min(len(other.samples.get(name, [])) for other in self.by_load.values()):
                        found.samples.setdefault(name, []).append(_scaled(samples[heat], tokens, seconds))
        return found

    @property
    def decided(self) -> bool:
        others = [one for one in self.still_in if one != OFF]
        if len(others) != 1:
            return not others
        figure = self.whole.ratio(others[0], OFF)
        return figure is not None and (figure.low > 1 or figure.high < 1)

    @property
    def _any(self) -> Standings[Knobs]:
        return next(iter(self.by_load.values()))

    def _of_off(self, load: int) -> tuple[float, float]:
        samples = self.by_load[load].samples.get(OFF.name, [])
        count = max(len(samples), 1)
        return sum(one.decoded for one in samples) / count, sum(one.seconds for one in samples) / count


def _scaled(one: Sample, tokens: float, seconds: float) -> Sample:
    return replace(
        one,
        decoded=round(SCALE * one.decoded / tokens) if tokens else 0,
        seconds=one.seconds / seconds if seconds else 0.0,
    )


@final
class Racing:
    """Runs races on a field; a heat that is in the journal isn't run again."""

    def __init__(
        self, entered: Field, journal: Journal, loads: Sequence[int], tick: Callable[[str], None] = lambda what: None
    ) -> None:
        self._field, self._journal, self._loads, self._tick = entered, journal, tuple(loads), tick

    def run(
        self,
        stage: str,
        contenders: Sequence[Knobs],
        prompts: Sequence[Prompt],
        *,
        until: float,
        least: int = FEWEST_HEATS,
        most: int | None = None,
    ) -> Race:
        """Until the budget's second `until`, at least `least` heats, and no more than `most` where that is given.

        Raises EngineFailed where off fails.
        """
        race, heat = Race.of(contenders, self._loads), 0
        for one in contenders:
            if one.remembers and max(self._loads) > 1 and group_size(max(self._loads)) > len(prompts):
                race.leave(
                    one, f"it drafts from earlier answers, so {max(self._loads)} requests at once need more prompts"
                )
        while len(race.still_in) > 1 and (most is None or heat < most):
            # where not all can be open, each answers several heats once it is
            block = range(heat, heat + (1 if len(race.still_in) <= self._field.most else least))
            if not self._may(stage, race, block, until if heat >= least else math.inf):
                break
            for one in order(race.still_in, heat):
                self._turn(stage, race, one, block, prompts)
            heat = block.stop
            if heat >= least:
                for one in race.slow():
                    race.leave(one)
                    self._field.gone(one)
                if most is None and race.decided:
                    break
        return race

    def _may(self, stage: str, race: Race, block: range, until: float) -> bool:
        """Whether there is time, or all of it is known."""
        if self._journal.spent < until:
            return True
        return all(
            self._journal.known("heat", _name(stage, heat, load, one)) is not None
            for one in race.still_in
            for heat in block
            for load in self._loads
        )

    def _turn(self, stage: str, race: Race, one: Knobs, block: range, prompts: Sequence[Prompt]) -> None:
        for heat in block:
            for load in self._loads:
                self._tick(f"{stage} heat {heat + 1}, {load} at once: {one.name}")
                group = group_of(prompts, heat, load, self._loads)

                def measured(group: Sequence[Prompt] = group, load: int = load) -> dict[str, Any]:
                    return self._field.subject(one, group).answer(group, load).as_dict()

                try:
                    found = self._journal.kept("heat", _name(stage, heat, load, one), measured)
                except EngineFailed as error:
                    self._field.gone(one)
                    if one == OFF:
                        raise
                    race.leave(one, str(error))
                    return
                race.take(one, load, dict(found))


def group_size(load: int) -> int:
    """Prompts of a heat: more than are answered at once, so that the load lasts."""
    return 1 if load == 1 else 2 * load


def group_of(prompts: Sequence[Prompt], heat: int, load: int, loads: Sequence[int]) -> list[Prompt]:
    """The next ones after those of the load before and the heat before, from the beginning again where they end."""
    sizes = [group_size(one) for one in loads]
    begin = heat * sum(sizes) + sum(sizes[: loads.index(load)])
    return [prompts[(begin + place) % len(prompts)] for place in range(group_size(load))]


def _name(stage: str, heat: int, load: int, one: Knobs) -> str:
    return f"{stage} {heat} at {load}: {one.name}"
