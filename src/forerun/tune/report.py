"""A tuning run as a dictionary, for the JSON file and the plots, and as sentences: what won, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..bench.intervals import Estimate
from .candidates import BRANCHED, EXIT, OFF, SKIP, Candidate
from .run import NOT_ASKED, Outcome
from .screening import LENGTHS
from .skipping.skip_sets import SkipSets
from .trials import Standings

SELF = (EXIT, SKIP)
NAMED = 4  # so many names in a sentence


def report_of(outcome: Outcome) -> dict[str, Any]:
    """Everything that was found, the summary's sentences first."""
    held, grid = outcome.held_out, _grid(outcome)
    return {
        "summary": list(summary(outcome)),
        "winner": outcome.winner.name,
        "tried": outcome.tried.name,
        "held_out": None if held is None else _standing(held, outcome.tried),
        "trials": [_standing(outcome.trials, one) for one in outcome.trials.candidates],
        "heats": outcome.trials.heats,
        "screened": [one.as_dict() for one in sorted(outcome.screened, key=lambda one: -one.speedup)],
        "not_screened": dict(outcome.impossible),
        "grid": grid,
        "sweet_spot": max(grid, key=lambda cell: float(cell["speedup"]), default=None),
        "less_is_more": list(outcome.sets.curve),
        "skip_sets": list(outcome.sets.tried),
        "damages": dict(outcome.sets.harms),
        "no_skip_sets": outcome.sets.reason,
        "answers": len(outcome.answers),
        "spent_seconds": round(outcome.spent, 1),
    }


def measured(outcome: Outcome) -> dict[str, Any]:
    """The figures of the winner on held-out prompts, for its system's file."""
    held = outcome.held_out
    if held is None or outcome.winner == OFF:
        return {}
    told = _standing(held, outcome.winner)
    plain = _standing(held, OFF)
    names = ("speedup", "speedup_interval", "tokens_per_second", "tokens_per_round", "prompts")
    return {**{name: told[name] for name in names}, "plain_tokens_per_second": plain["tokens_per_second"]}


def summary(outcome: Outcome) -> Iterator[str]:
    """Plain sentences."""
    methods = list(dict.fromkeys(one.config.method for one in outcome.screened))
    candidates = _count(len(outcome.trials.candidates) - 1, "candidate")
    yield (
        f"Tried: {_count(len(outcome.screened), 'way')} to draft ({', '.join(methods) or 'none'}), screened on "
        f"{_count(len(outcome.answers), 'recorded answer')}; {candidates} on the clock beside plain decoding, in "
        f"{_count(outcome.trials.heats, 'heat')}. {outcome.spent / 60:.1f} minutes in all."
    )
    yield _verdict(outcome)
    if outcome.tried != OFF:
        yield from _bounds(outcome)
    yield from _self_speculation(outcome)
    yield from _branched(outcome)
    yield from _left_out(outcome)


def _verdict(outcome: Outcome) -> str:
    if outcome.tried == OFF:
        others = [one for one in outcome.trials.candidates if one != OFF]
        if not others:
            return "Off won: no other method could be tried."
        best = max(others, key=outcome.trials.speedup)
        return (
            f"Off won: the fastest of the others, {best.name}, came to {_shown(outcome.trials.ratio(best, OFF))} x plain "
            "decoding in the trials, which is no clear gain."
        )
    told, heats = _shown(outcome.judged), 0 if outcome.held_out is None else outcome.held_out.heats
    if outcome.winner == OFF:
        return (
            f"Off won: {outcome.tried.name} was ahead in the trials, but on {heats} held-out answers it came to {told} x "
            "plain decoding, which is no clear gain."
        )
    return f"Won: {outcome.winner.name}, {told} x plain decoding on {heats} held-out answers."


def _bounds(outcome: Outcome) -> Iterator[str]:
    """What a round gives and what it takes, in plain steps."""
    if outcome.held_out is None:
        return
    told = _standing(outcome.held_out, outcome.tried)
    if not told["drafted"]:
        return
    tokens, verify, draft = told["tokens_per_round"], told["verify_cost"], told["draft_cost"]
    free = tokens / verify
    ideal = tokens / (1 + draft)
    bounds = [(free, "drafting costs too much"), (ideal, "checking several tokens costs too much")]
    right = ""
    if outcome.tried.config.method not in BRANCHED:  # of a tree's guesses most are wrong by design
        perfect = (1 + told["drafted_per_round"]) / (verify + draft)
        bounds.append((perfect, "too many guesses are wrong"))
        right = f", with every guess right {perfect:.2f} x"
    yield (
        f"What limits it: a round gives {tokens:.2f} tokens and takes {verify:.2f} plain steps to verify and {draft:.2f} to "
        f"draft. With free drafts it would be {free:.2f} x, with free width {ideal:.2f} x{right}: above all, "
        f"{max(bounds)[1]}."
    )


def _self_speculation(outcome: Outcome) -> Iterator[str]:
    """The numbers that say why drafting with a part of the model doesn't pay."""
    own = [one for one in outcome.screened if one.config.method in SELF]
    if outcome.winner.config.method in SELF or any(part.method in SELF for part in outcome.winner.config.parts):
        return
    if own:
        best = max(own, key=lambda one: one.speedup)
        verb = "doesn't pay" if best.speedup <= 1 else "was not the best"
        yield (
            f"Drafting with a part of the model {verb} here: the best plan, {best.config.name}, predicts the model's next "
            f"token in {best.match_rate:.1%} of the positions at {best.draft_cost:.2f} of a plain step, which promises "
            f"{best.speedup:.2f} x."
        )
    harms = outcome.sets.harms
    if harms:
        ordered = sorted(harms, key=lambda one: harms[one])
        least, middle, most = ordered[0], ordered[len(ordered) // 2], ordered[-1]
        yield (
            f"Leaving out a single sublayer, of {len(harms)} tried, loses {harms[least]:.1%} of the tokens at least "
            f"({least}), {harms[middle]:.1%} in the middle and {harms[most]:.1%} at most ({most})."
        )
    yield from _best_set(outcome.sets, outcome.target.ms(1))


def _best_set(sets: SkipSets, step_ms: float) -> Iterator[str]:
    best = sets.best
    if best is None:
        return
    about = (
        f"{best['name']}: {_count(best['skipped'], 'sublayer')} left out, {best['match_rate']:.1%} of the tokens right at "
        f"{best['cost']:.2f} of a plain forward"
    )
    if best["screened"]:
        count = sum(one["skipped"] > 0 for one in sets.tried)
        yield f"Of the skip sets, {count} in all, none promised enough to be timed; the best was {about}."
        return
    steps = 1e3 * best["value"] / step_ms
    yield f"Of the skip sets that were timed, the fastest was {about}. A token took it {steps:.2f} plain steps."


def _branched(outcome: Outcome) -> Iterator[str]:
    """The predicted speed-ups of the best tree and the best graph, beside the drafter that they branch."""
    alone = {one.config.name: one.speedup for one in outcome.screened}
    for method in BRANCHED:
        screened = [one for one in outcome.screened if one.config.method == method]
        if screened:
            best = max(screened, key=lambda one: one.speedup)
            inner = best.config.parts[0].name
            yield (
                f"Drafting several continuations at once promised {best.speedup:.2f} x at best by screening "
                f"({best.config.name}), and a single one of the same drafter {alone[inner]:.2f} x."
            )


def _left_out(outcome: Outcome) -> Iterator[str]:
    """What could not be tried, by its reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in outcome.impossible.items():
        by_reason.setdefault(reason.rstrip("."), []).append(name)
    if outcome.sets.reason not in ("", NOT_ASKED):
        by_reason.setdefault(outcome.sets.reason.rstrip("."), []).append("skip sets")
    for reason, names in by_reason.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"Not tried: {', '.join(names[:NAMED])}{more} ({reason})."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _standing(standings: Standings[Candidate], one: Candidate) -> dict[str, Any]:
    """One candidate's figures over the heats that it ran in; costs are in plain steps, None where nothing was drafted."""
    samples = standings.samples.get(one.name, [])
    plain = standings.samples.get(OFF.name, [])
    decoded, seconds = sum(s.decoded for s in samples), sum(s.seconds for s in samples)
    rounds, drafted = sum(s.rounds for s in samples), sum(s.drafted for s in samples)
    plain_rounds = sum(s.rounds for s in plain)
    step = sum(s.verify_seconds for s in plain) / plain_rounds if plain_rounds else 0.0
    priced = bool(rounds and step)
    figure = standings.ratio(one, OFF)
    return {
        "name": one.name,
        "method": one.config.method,
        **one.parts(),
        "speedup": None if figure is None else figure.value,
        "speedup_interval": None if figure is None else [figure.low, figure.high],
        "tokens_per_second": decoded / seconds if seconds else None,
        "prompts": len(samples),
        "left_after": standings.out.get(one.name),
        "rounds": rounds,
        "drafted": drafted,
        "drafted_per_round": drafted / rounds if rounds else 0.0,
        "acceptance": sum(s.accepted for s in samples) / drafted if drafted else None,
        "tokens_per_round": decoded / rounds if rounds else None,
        "verify_cost": sum(s.verify_seconds for s in samples) / rounds / step if priced else None,
        "draft_cost": sum(s.draft_seconds for s in samples) / rounds / step if priced else None,
    }


def _grid(outcome: Outcome) -> list[dict[str, Any]]:
    """Exit layer by draft length."""
    return [
        {"exit_layer": one.config.options["exit_layer"], "length": length, "speedup": speedup}
        for one in outcome.screened
        if one.config.method == EXIT
        for length, speedup in zip(LENGTHS, one.speedups, strict=True)
    ]


def _shown(figure: Estimate | None) -> str:
    return "nothing" if figure is None else f"{figure.value:.2f} ({figure.low:.2f} to {figure.high:.2f})"
