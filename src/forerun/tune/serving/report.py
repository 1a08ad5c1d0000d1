"""What a run over an engine's knobs found: figures, sentences, the command that launches the winner, and its file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ...engine.system.file import ENGINE_MARK
from .knobs import OFF, Knobs
from .race import Race
from .run import ServingOutcome

FORMAT = 1


def report_of(outcome: ServingOutcome) -> dict[str, Any]:
    """Everything that was found, the summary's sentences first."""
    races = {"first": outcome.first, "second": outcome.second, "held_out": outcome.held_out}
    return {
        "summary": list(summary(outcome)),
        "winner": outcome.winner.name,
        "tried": outcome.tried.name,
        "best_by_load": {str(load): one.name for load, one in outcome.by_load.items()},
        **{name: None if race is None else race_told(race) for name, race in races.items()},
        "failed": outcome.failed,
        "spent_seconds": round(outcome.spent, 1),
    }


def race_told(race: Race) -> list[dict[str, Any]]:
    return [standing(race, one) for one in race.contenders]


def standing(race: Race, one: Knobs) -> dict[str, Any]:
    """One setting's figures, over all loads and at each."""
    figure = race.whole.ratio(one, OFF)
    samples = [sample for own in race.by_load.values() for sample in own.samples.get(one.name, [])]
    drafted = sum(sample.drafted for sample in samples)
    return {
        "name": one.name,
        "method": one.method,
        "settings": dict(one.settings),
        "speedup": None if figure is None else figure.value,
        "speedup_interval": None if figure is None else [figure.low, figure.high],
        "by_load": {str(load): _at(race, load, one) for load in race.by_load},
        "heats": min(len(own.samples.get(one.name, [])) for own in race.by_load.values()),
        "acceptance": sum(sample.accepted for sample in samples) / drafted if drafted else None,
        "drafted": drafted,
        "equal_texts": race.equal_texts(one),
        "left_after": race.by_load[min(race.by_load)].out.get(one.name),
    }


def _at(race: Race, load: int, one: Knobs) -> dict[str, Any]:
    own = race.by_load[load]
    samples, figure = own.samples.get(one.name, []), own.ratio(one, OFF)
    tokens, seconds = sum(sample.decoded for sample in samples), sum(sample.seconds for sample in samples)
    return {
        "tokens_per_second": tokens / seconds if seconds else None,
        "speedup": None if figure is None else figure.value,
        "speedup_interval": None if figure is None else [figure.low, figure.high],
    }


def summary(outcome: ServingOutcome) -> Iterator[str]:
    """Plain sentences."""
    tried = {one.name for race in (outcome.first, outcome.second) if race is not None for one in race.contenders}
    yield (
        f"Tried: {_count(len(tried) - 1, 'setting')} beside off, in {_count(outcome.trials.heats, 'heat')} of the last "
        f"trials. {outcome.spent / 60:.1f} minutes in all."
    )
    yield _verdict(outcome)
    judged = outcome.held_out or outcome.trials
    best = outcome.tried if outcome.tried != OFF else _fastest(outcome.trials)
    if best is not None:
        yield from _losses(judged, best)
    yield from (f"Left out: {name} ({reason.rstrip('.')})." for name, reason in outcome.failed.items())


def _verdict(outcome: ServingOutcome) -> str:
    if outcome.tried == OFF:
        best = _fastest(outcome.trials)
        if best is None:
            return "Off won: nothing else could be tried."
        return (
            f"Off won: the fastest of the others, {best.name}, came to {_shown(outcome.trials, best)} x plain decoding in "
            "the trials, which is no clear gain."
        )
    assert outcome.held_out is not None
    told, heats = _shown(outcome.held_out, outcome.tried), outcome.held_out.heats
    if outcome.tried.name in outcome.held_out.failed:
        return f"Off won: {outcome.tried.name} was ahead in the trials, but failed when it was judged."
    if outcome.winner == OFF:
        return (
            f"Off won: {outcome.tried.name} was ahead in the trials, but in {heats} heats on held-out prompts it came to "
            f"{told} x plain decoding, which is no clear gain."
        )
    return f"Won: {outcome.winner.name}, {told} x plain decoding in {heats} heats on held-out prompts."


def _losses(race: Race, one: Knobs) -> Iterator[str]:
    """The loads at which it gains and at which off is better, where there are several."""
    if len(race.by_load) > 1:
        figures = {load: own.ratio(one, OFF) for load, own in race.by_load.items()}
        told = ", ".join(
            f"{figure.value:.2f} ({figure.low:.2f} to {figure.high:.2f}) at {load}"
            for load, figure in figures.items()
            if figure is not None
        )
        slower = [str(load) for load, figure in figures.items() if figure is not None and figure.high < 1]
        at = f"; at {' and '.join(slower)} off is faster" if slower else ""
        if told:
            yield f"{one.name}, times plain decoding by the number of requests at once: {told}{at}."


def _fastest(race: Race) -> Knobs | None:
    others = [one for one in race.contenders if one != OFF and one.name not in race.failed]
    return max(others, key=race.whole.speedup, default=None)


def _shown(race: Race, one: Knobs) -> str:
    figure = race.whole.ratio(one, OFF)
    return "nothing" if figure is None else f"{figure.value:.2f} ({figure.low:.2f} to {figure.high:.2f})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def engine_system(outcome: ServingOutcome, launching: Mapping[str, Any], tuned_on: Mapping[str, Any]) -> dict[str, Any]:
    """The winner's file. launching: the engine, its model, and the command and its environment, or an address."""
    judged = outcome.held_out
    measured = {} if judged is None or outcome.winner == OFF else standing(judged, outcome.winner)
    return {
        ENGINE_MARK: FORMAT,
        "name": outcome.winner.name,
        **launching,
        "method": outcome.winner.method,
        "settings": dict(outcome.winner.settings),
        "remembers": outcome.winner.remembers,
        "tuned_on": dict(tuned_on),
        "measured": {name: value for name, value in measured.items() if name not in ("name", "method", "settings")},
    }


def script(name: str, command: list[str], environment: Mapping[str, str]) -> str:
    """A shell script that launches the winner; further arguments, such as a port, are passed on."""
    exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in environment.items())
    return f'#!/bin/sh\n# {name}, written by forerun tune\n{exports}exec {shlex.join(command)} "$@"\n'
