"""A tuning run: record answers, screen all drafters, search skip sets, time the promising ones, judge the winner.

Tuning and judging the winner use different prompts. Each stage has a share of the budget; the minimum that a decision needs
is done even if that takes longer. All measurements go through the journal, so a run may be killed at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

from ..bench.intervals import Estimate
from ..core.cost import Cost, Costs
from ..engine.engine import Engine
from ..errors import ForerunError
from .candidates import (
    BRANCHED,
    CHECKING,
    COPYING,
    GUESSED,
    HYBRID,
    OFF,
    SKIP,
    SUFFIX,
    WITH_LAW,
    Candidate,
    DrafterConfig,
    branched_configs,
    first_configs,
    guessed_configs,
    hybrid_configs,
    skip_configs,
    with_rules,
)
from .engines import Engines
from .journal import Journal
from .machine import Machine, Sample
from .screening import (
    Positions,
    Screen,
    Screened,
    checked_step,
    positions_of_branched,
    positions_of_copying,
    positions_of_hybrid,
    positions_of_read,
    read_answers,
)
from .setup import Setup, split
from .skipping.match_rate import Recorded, record
from .skipping.skip_sets import NO_TIME, SkipSets, SkipSetSearch
from .trials import FEWEST_HEATS, Standings, run_trials

# by which share of the budget a stage ends
ANSWERS, SCREENING, SEARCH, TRIALS, JUDGEMENT = 0.1, 0.35, 0.55, 0.85, 1.0
CHUNK, MOST_CHUNKS = 4, 3
MOST_OF_A_METHOD, MOST_BRANCHED, OTHERS_OF_HYBRIDS, OTHERS_OF_BRANCHED = 2, 1, 2, 2
HOPELESS = 0.85  # predicted speed-ups below are not tried, unless nothing promises more
FEWEST_TRIED, MOST_TRIED = 2, 9
FEWEST_JUDGED = 6  # heats on held-out prompts
NOT_ASKED = "not asked for"


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """winner is what to use; tried, which held-out prompts were to confirm, may be another one. held_out: None if off won
    the trials already. impossible: why a drafter can't be used here, by its name."""

    winner: Candidate
    tried: Candidate
    screened: Sequence[Screened]
    impossible: dict[str, str]
    sets: SkipSets
    trials: Standings[Candidate]
    held_out: Standings[Candidate] | None
    answers: Sequence[Recorded]
    target: Cost
    spent: float

    @property
    def judged(self) -> Estimate | None:
        """The speed-up of the one that was tried, on held-out prompts."""
        return None if self.held_out is None else self.held_out.ratio(self.tried, OFF)


@final
class Tuning:
    """One run. tick is told what is being done."""

    def __init__(
        self,
        engine: Engine,
        setup: Setup,
        machine: Machine,
        journal: Journal,
        tick: Callable[[str], None] = lambda what: None,
    ) -> None:
        self._engine = engine
        self._engines = Engines(engine)
        self._setup = setup
        self._machine = machine
        self._journal = journal
        self._tick = tick
        self._positions: dict[str, tuple[Positions, float]] = {}
        self._reads: dict[str, Mapping[str, Any]] = {}
        self._impossible: dict[str, str] = {}

    def run(self, prompts: Sequence[Sequence[int]]) -> Outcome:
        """Raises ValueError where the prompts are too few or have no answers."""
        tuned_on, held_out = split(prompts, self._setup.seed)
        answers = self._answers(tuned_on)
        screen = Screen(answers, self._target(answers))
        screened = self._screen(screen)
        sets = self._sets(screen)
        screened += self._screened_sets(screen, sets)
        guessed = self._screened_guessed(screen, screened)
        screened += [*guessed, *self._screened_hybrids(screen, screened), *self._screened_branched(screen, screened)]
        candidates = self._promising(screened, screen.target)
        trials = self._heats("trial", candidates, tuned_on, TRIALS, FEWEST_HEATS)
        tried, held = trials.winner, None
        if tried != OFF:
            held = self._heats(
                "held-out", [tried], held_out, JUDGEMENT, FEWEST_JUDGED, max(len(held_out), FEWEST_JUDGED)
            )
        winner = OFF if held is None else held.winner
        return Outcome(
            winner, tried, screened, self._impossible, sets, trials, held, answers, screen.target, self._journal.spent
        )

    def _until(self, share: float) -> float:
        return share * self._setup.budget

    def _answers(self, prompts: Sequence[Sequence[int]]) -> list[Recorded]:
        """Greedy answers to a few prompts, some at a time; the first chunk in any case."""
        found: list[Recorded] = []
        for number in range(MOST_CHUNKS):
            chunk = prompts[number * CHUNK : (number + 1) * CHUNK]
            if chunk:
                self._tick("recording greedy answers")
                until = self._until(ANSWERS) if number else float("inf")
                told = self._journal.within(until, "answers", str(number), partial(self._recorded, chunk))
                found += [Recorded(tuple(ids), start) for ids, start in (told or {"answers": []})["answers"]]
        return found

    def _recorded(self, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
        answers = record(self._engine, [list(ids) for ids in prompts], self._setup.max_new_tokens)
        return {"answers": [[one.ids, one.start] for one in answers]}

    def _target(self, answers: Sequence[Recorded]) -> Cost:
        """The forwards' cost by rows, with what a plain step takes beside its forward."""
        self._tick("timing forwards")
        middle = sorted(answers, key=lambda one: one.start)[len(answers) // 2]

        def measured() -> dict[str, Any]:
            cost = self._machine.verify_cost(self._engine, middle.start)
            plain = self._sample(OFF, middle.ids[: middle.start])
            step = 1e3 * plain.seconds / plain.decoded if plain.decoded else 0.0
            beside = max(step - cost.ms(1), 0.0)
            points = tuple(replace(point, ms=point.ms + beside) for point in cost.points)
            return Costs((replace(cost, points=points),)).as_dict()

        return Costs.from_dict(self._journal.kept("cost", "target", measured)).target

    def _screen(self, screen: Screen) -> list[Screened]:
        runner = self._engine.runner
        configs = first_configs(self._setup.chosen, runner.num_layers, runner.vocab_size, self._setup.own_weights)
        return [
            one for config in configs if (one := self._screened(screen, config, self._until(SCREENING))) is not None
        ]

    def _screened(self, screen: Screen, config: DrafterConfig, until: float) -> Screened | None:
        """None if the drafter can't be used, or the time is up."""
        self._tick(f"screening {config.name}")
        if config.method in COPYING:
            positions, step_ms = positions_of_copying(self._engines.of_config(config), screen.answers), 0.0
        else:
            name = f"{config.name}, {len(screen.answers)} answers, ranked"
            read = self._journal.within(until, "way", name, lambda: self._read(config, screen.answers))
            if read is None or "reason" in read:
                self._impossible[config.name] = NO_TIME if read is None else read["reason"]
                return None
            self._reads[config.name] = read
            positions, step_ms = positions_of_read(read, screen.answers), read["step_ms"]
        self._positions[config.name] = positions, step_ms
        return screen.screened(config, positions, step_ms)

    def _read(self, config: DrafterConfig, answers: Sequence[Recorded]) -> dict[str, Any]:
        try:
            engine = self._engines.of_config(config)
            said = read_answers(engine, answers)
        except (ForerunError, ValueError) as error:
            return {"reason": str(error)}
        first = answers[0]
        return {**said, "step_ms": self._machine.step_ms(engine, config.name, first.ids[: first.start])}

    def _sets(self, screen: Screen) -> SkipSets:
        if SKIP not in self._setup.chosen.methods:
            return SkipSets(reason=NOT_ASKED)
        read = hashlib.sha256(repr([one.ids for one in screen.answers[:CHUNK]]).encode()).hexdigest()[:16]
        about = {"model": self._engine.identity.as_dict(), "answers": read}
        search = SkipSetSearch(
            self._engine,
            screen.answers,
            screen.target,
            self._machine,
            self._journal,
            self._setup.storage,
            about,
            self._setup.set_trials,
        )
        return search.run(self._until(SEARCH), self._tick)

    def _screened_sets(self, screen: Screen, sets: SkipSets) -> list[Screened]:
        found = (self._screened(screen, config, float("inf")) for config in skip_configs(sets.plans))
        return [one for one in found if one is not None]

    def _screened_guessed(self, screen: Screen, screened: Sequence[Screened]) -> list[Screened]:
        """The best of the drafters that check guesses, with the best suffix."""
        ordered = sorted(screened, key=lambda one: -one.speedup)
        suffixes = [one.config for one in ordered if one.config.method == SUFFIX]
        others = [one.config for one in ordered if one.config.method in CHECKING][:OTHERS_OF_HYBRIDS]
        if GUESSED not in self._setup.chosen.methods:
            return []
        if not suffixes or not others:
            self._impossible[GUESSED] = (
                f"guesses need {SUFFIX} and one of {', '.join(CHECKING)} among the methods that run"
            )
            return []
        found: list[Screened] = []
        for config in guessed_configs(suffixes[0], others):
            (copied, _), (checking, step_ms) = (self._positions[part.name] for part in config.parts)
            found.append(screen.screened(config, checking, checked_step(copied, step_ms)))
        return found

    def _screened_hybrids(self, screen: Screen, screened: Sequence[Screened]) -> list[Screened]:
        """The best drafter that copies beside the best of the others."""
        ordered = sorted(screened, key=lambda one: -one.speedup)
        copying = [one.config for one in ordered if one.config.method in COPYING]
        others = [one.config for one in ordered if one.config.method not in COPYING][:OTHERS_OF_HYBRIDS]
        if HYBRID not in self._setup.chosen.methods or not copying:
            return []
        found: list[Screened] = []
        for config in hybrid_configs(copying[0], others):
            (first, _), (then, step_ms) = (self._positions[part.name] for part in config.parts)
            found.append(screen.screened(config, positions_of_hybrid(first, then), step_ms))
        return found

    def _screened_branched(self, screen: Screen, screened: Sequence[Screened]) -> list[Screened]:
        """Trees and graphs of the best drafters with a law, unless these promise nothing by themselves."""
        asked = [method for method in BRANCHED if method in self._setup.chosen.methods]
        ordered = sorted((one for one in screened if one.config.method in WITH_LAW), key=lambda one: -one.speedup)
        hopeful = [one.config for one in ordered if one.speedup >= HOPELESS][:OTHERS_OF_BRANCHED]
        if not hopeful:
            best = f"the best, {ordered[0].config.name}, {ordered[0].speedup:.2f} x" if ordered else "none was screened"
            reason = f"no drafter that can be branched promised {HOPELESS} x plain decoding by itself: {best}"
            self._impossible.update((f"{method}s", reason) for method in asked)
        found: list[Screened] = []
        for config in branched_configs(asked, hopeful):
            self._tick(f"screening {config.name}")
            inner = config.parts[0].name
            measured = self._engine.runner.cost
            positions = positions_of_branched(self._reads[inner], screen.answers, config, measured)
            found.append(screen.screened(config, positions, self._positions[inner][1]))
        return found

    def _promising(self, screened: Sequence[Screened], target: Cost) -> list[Candidate]:
        ordered = sorted(screened, key=lambda one: (-one.speedup, one.config.rank))
        hopeful = [one for one in ordered if one.speedup >= HOPELESS] or ordered[:1]
        taken: list[Screened] = []
        for one in hopeful:
            most = MOST_BRANCHED if one.config.method in BRANCHED else MOST_OF_A_METHOD
            if sum(other.config.method == one.config.method for other in taken) < most:
                taken.append(one)
        seconds = self._setup.budget * (TRIALS - SEARCH)
        answer = 1e-3 * target.ms(1) * self._setup.max_new_tokens
        count = min(max(int(seconds / (FEWEST_HEATS * answer)) - 1, FEWEST_TRIED), MOST_TRIED)
        return with_rules([(one.config, one.best_length) for one in taken], count)

    def _heats(
        self,
        stage: str,
        candidates: Sequence[Candidate],
        prompts: Sequence[Sequence[int]],
        share: float,
        least: int,
        most: int | None = None,
    ) -> Standings[Candidate]:
        def tick(standings: Standings[Candidate]) -> None:
            self._tick(f"{stage} heats: {len(standings.still_in)} methods in")

        return run_trials(
            candidates,
            prompts,
            self._sample,
            self._journal,
            stage=stage,
            until=self._until(share),
            least=least,
            most=most,
            tick=tick,
        )

    def _sample(self, candidate: Candidate, ids: Sequence[int]) -> Sample:
        return self._machine.answer(self._engines.of(candidate), candidate.name, ids, self._setup.max_new_tokens)
