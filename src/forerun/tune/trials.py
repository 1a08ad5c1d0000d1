"""Wall-clock trials: in each heat all remaining candidates answer one prompt, in an order that changes from heat to heat.

Times are compared prompt by prompt, with 95 % intervals by resampling the heats. After a few heats, candidates drop out that
are slower than the fastest one even at the better end of their interval. A candidate that can't be distinguished from a
simpler one loses to it; nothing is simpler than off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ..bench.interleaving import order
from ..bench.intervals import Estimate, ratio_of_rates
from .candidates import OFF, Candidate
from .journal import Journal
from .machine import Sample

FEWEST_HEATS = 4
Answer = Callable[[Candidate, Sequence[int]], Sample]


class Contender(Protocol):
    """Something that is timed against off; of two that can't be told apart the one of the lower rank wins."""

    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> tuple[int, ...]: ...


C = TypeVar("C", bound=Contender)


@dataclass(slots=True)
class Standings(Generic[C]):
    """The times so far by candidate. All start together, so the length of a list is the number of its candidate's heats.

    Off is the first of the candidates. out: the heat after which a candidate dropped out.
    """

    candidates: tuple[C, ...]
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    out: dict[str, int] = field(default_factory=dict)

    @property
    def heats(self) -> int:
        return max(map(len, self.samples.values()), default=0)

    @property
    def off(self) -> C:
        return self.candidates[0]

    @property
    def still_in(self) -> list[C]:
        return [one for one in self.candidates if one.name not in self.out]

    def take(self, times: Mapping[str, Any]) -> None:
        for name, time in times.items():
            self.samples.setdefault(name, []).append(Sample(**time))

    def ratio(self, one: C, other: C) -> Estimate | None:
        """How many times as fast one is as the other over the heats that both ran in; None where nothing was decoded."""
        pairs = list(zip(self.samples.get(one.name, []), self.samples.get(other.name, []), strict=False))
        return ratio_of_rates(
            [a.decoded for a, _ in pairs],
            [a.seconds for a, _ in pairs],
            [b.decoded for _, b in pairs],
            [b.seconds for _, b in pairs],
        )

    @property
    def fastest(self) -> C:
        """Of those still in."""
        return max(self.still_in, key=self.speedup)

    def drop_slow(self) -> None:
        """Drop the candidates that are certainly slower than the fastest; off stays as the reference."""
        self.out |= dict.fromkeys((one.name for one in self.slow()), self.heats)

    def slow(self) -> list[C]:
        """Those still in that are certainly slower than the fastest; never off."""
        best = self.fastest
        figures = {one.name: self.ratio(one, best) for one in self.still_in if one not in (best, self.off)}
        return [one for one in self.still_in if (figure := figures.get(one.name)) is not None and figure.high < 1]

    @property
    def winner(self) -> C:
        """Of those certainly faster than off, the simplest that can't be distinguished from the fastest."""
        faster = [one for one in self.still_in if one != self.off and not self._ties(one, self.off)]
        if not faster:
            return self.off
        best = max(faster, key=self.speedup)
        tied = [one for one in faster if one == best or self._ties(best, one)]
        return min(tied, key=lambda one: (one.rank, -self.speedup(one)))

    def _ties(self, one: C, other: C) -> bool:
        """Whether one may be no faster than the other."""
        figure = self.ratio(one, other)
        return figure is None or figure.low <= 1

    def speedup(self, one: C) -> float:
        """Over off; 0 where nothing was decoded."""
        figure = self.ratio(one, self.off)
        return 0.0 if figure is None else figure.value


def run_trials(
    candidates: Sequence[Candidate],
    prompts: Sequence[Sequence[int]],
    answer: Answer,
    journal: Journal,
    *,
    stage: str,
    until: float,
    least: int = FEWEST_HEATS,
    most: int | None = None,
    tick: Callable[[Standings[Candidate]], None] = lambda standings: None,
) -> Standings[Candidate]:
    """Heats over the prompts, again and again, until the budget's second `until`, at least `least` of them.

    most: no more heats than that; without it they end, too, where only off and one other are left and can be told apart.
    """
    standings = Standings((OFF, *candidates))
    heat = 0
    while len(standings.still_in) > 1 and (most is None or heat < most):
        turn = order(standings.still_in, heat)
        name = f"{stage} {heat}: {'; '.join(sorted(one.name for one in turn))}"
        ids = prompts[heat % len(prompts)]

        def run(turn: Sequence[Candidate] = turn, ids: Sequence[int] = ids) -> Mapping[str, Any]:
            return {one.name: answer(one, ids).as_dict() for one in turn}

        times = journal.within(until if heat >= least else float("inf"), "heat", name, run)
        if times is None:
            break
        standings.take(times)
        heat += 1
        tick(standings)
        if heat >= least:
            standings.drop_slow()
            if most is None and _decided(standings):
                break
    return standings


def _decided(standings: Standings[Candidate]) -> bool:
    others = [one for one in standings.still_in if one != OFF]
    if len(others) != 1:
        return not others
    figure = standings.ratio(others[0], OFF)
    return figure is not None and (figure.low > 1 or figure.high < 1)
