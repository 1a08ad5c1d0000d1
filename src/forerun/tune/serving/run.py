"""A tuning run over an engine's knobs: a setting of every method, then more settings of the best, then the judgement.

The winner is judged on held-out prompts against off, as forerun's own drafters are. All that is measured is in the journal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from ..journal import Journal
from ..setup import FEWEST_PROMPTS, parted
from .asking import Prompt
from .field import Field
from .knobs import OFF, Knobs, Wanted
from .race import Race, Racing
from .serving_engine import ServingEngine

# by which share of the budget a stage ends
FIRST, SECOND, JUDGEMENT = 0.4, 0.8, 1.0
MOST_NEAR, FEWEST_WITH_SECOND, OF_THE_SECOND = 8, 2, 2
FEWEST_JUDGED = 6


@final
@dataclass(frozen=True, slots=True)
class ServingSetup:
    """budget: seconds. loads: numbers of requests at once."""

    wanted: Wanted
    budget: float
    loads: tuple[int, ...] = (1,)
    max_new_tokens: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.loads or min(self.loads) < 1 or len(set(self.loads)) < len(self.loads):
            told = ",".join(map(str, self.loads))
            raise ValueError(f"--concurrency takes different numbers from 1 on, such as 1,8, got {told or 'nothing'}")


@final
@dataclass(frozen=True, slots=True)
class ServingOutcome:
    """winner is what to use; tried, which held-out prompts were to confirm. second: None where there was nothing near."""

    winner: Knobs
    tried: Knobs
    first: Race
    second: Race | None
    held_out: Race | None
    spent: float
    by_load: Mapping[int, Knobs] = field(default_factory=dict)

    @property
    def trials(self) -> Race:
        """The race that chose."""
        return self.second or self.first

    @property
    def failed(self) -> dict[str, str]:
        races = (self.first, self.second, self.held_out)
        return {name: reason for race in races if race is not None for name, reason in race.failed.items()}


def split_prompts(prompts: Sequence[Prompt], seed: int) -> tuple[list[Prompt], list[Prompt]]:
    """Prompts to tune on, and those held out. Raises ValueError on too few."""
    known = list({json.dumps(prompt): prompt for prompt in prompts}.values())
    if len(known) < FEWEST_PROMPTS:
        raise ValueError(
            f"tuning needs at least {FEWEST_PROMPTS} different prompts, a third of which is held out; got {len(known)}"
        )
    return parted(known, seed)


def about_prompts(prompts: Sequence[Prompt]) -> str:
    """What a log says of them."""
    return hashlib.sha256(json.dumps(list(prompts)).encode()).hexdigest()[:16]


def tune_engine(
    engine: ServingEngine | None,
    setup: ServingSetup,
    entered: Field,
    journal: Journal,
    prompts: Sequence[Prompt],
    first: Sequence[Knobs],
    tick: Callable[[str], None] = lambda what: None,
) -> ServingOutcome:
    """first: what to begin with. engine: None where nothing else can be tried.

    Raises EngineFailed where off fails, ValueError on too few prompts.
    """
    tuned_on, held = split_prompts(prompts, setup.seed)
    racing = Racing(entered, journal, setup.loads, tick)
    one = racing.run("first", first, tuned_on, until=FIRST * setup.budget)
    near = _near(engine, setup, one, journal) if engine is not None else []
    two = racing.run("second", near, tuned_on, until=SECOND * setup.budget) if near else None
    tried, by_load = _chosen(engine, two or one)
    judged = None
    if tried != OFF:
        most = max(len(held), FEWEST_JUDGED)
        judged = racing.run("held-out", [tried], held, until=JUDGEMENT * setup.budget, least=FEWEST_JUDGED, most=most)
    winner = OFF if judged is None else judged.whole.winner
    return ServingOutcome(winner, tried, one, two, judged, journal.spent, by_load)


def _near(engine: ServingEngine, setup: ServingSetup, race: Race, journal: Journal) -> list[Knobs]:
    """The best so far and settings beside it, and a few beside the second; as many as there is time for, which may be none.

    How many is decided once and kept, for a resumed run has spent other times.
    """
    ordered = [one for one in _by_speed(race) if one != OFF]
    if not ordered:
        return []

    def counted() -> dict[str, Any]:
        each, left = journal.spent / len(race.contenders), SECOND * setup.budget - journal.spent
        # off and the best run again beside them
        return {"count": min(max(int(left / each) - 2, 0), MOST_NEAR) if each else MOST_NEAR}

    count = int(journal.kept("count", "near", counted)["count"])
    beside = engine.near(ordered[0])
    if len(ordered) > 1 and count > FEWEST_WITH_SECOND:
        others = [ordered[1], *engine.near(ordered[1])][:OF_THE_SECOND]
        beside = [*beside[: count - len(others)], *others]
    found = [one for one in beside[:count] if one not in ordered[:1]]
    return [ordered[0], *found] if found else []


def _by_speed(race: Race) -> list[Knobs]:
    """The fastest over all loads first; those that failed left out."""
    whole = race.whole
    return sorted((one for one in race.contenders if one.name not in race.failed), key=lambda one: -whole.speedup(one))


def _chosen(engine: ServingEngine | None, race: Race) -> tuple[Knobs, dict[int, Knobs]]:
    """What to judge: the winner over all loads, or what merges the best of its method at each load, where that differs."""
    winner, whole = race.whole.winner, race.whole
    by_load = {load: own.winner for load, own in race.by_load.items()}
    leader = winner
    if leader == OFF:
        drafting = [one for one in by_load.values() if one != OFF]
        leader = max(drafting, key=whole.speedup, default=OFF)
    if engine is None or leader == OFF or len(race.by_load) == 1:
        return winner, by_load
    family = {load: _of_family(race, load, leader) for load in race.by_load}
    merged = engine.merged(family) if len({one.name for one in family.values()}) > 1 else None
    return (winner if merged is None else merged), by_load


def _of_family(race: Race, load: int, leader: Knobs) -> Knobs:
    """The best at a load among those that differ from the leader in their length alone, off where none is clearly faster."""
    own = race.by_load[load]
    members = [one for one in own.still_in if one == OFF or one.family == leader.family]
    return type(own)(tuple(members), {one.name: own.samples.get(one.name, []) for one in members}).winner
