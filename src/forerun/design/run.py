"""From a target, shapes, drafts and a log to a recommendation: measure, estimate what is not measured, predict, rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import mean
from typing import Any

from ..core.drafter import Drafter
from ..engine.engine import Engine
from ..models.files.draft_shape import DraftShape
from .acceptance import AcceptanceEstimate, MeasuredAcceptance, estimate_from
from .candidates import Candidate, CandidateOnLog, read_log_with
from .log import LoggedAnswer, coverage
from .overhead import measure_overhead
from .round_timing import REPEATS, measure, room_for
from .shape_costs import Row, ShapeCosts, compare_shapes
from .shapes import Size, by_layer, distinct, size_of
from .throughput import PREFIX, DraftTimes, Loop, Prediction, best, check_acceptance, needed, rounds_of
from .untrained import UntrainedDraft, plan_of, untrained

GOAL = 1.3
ANSWER = 128  # tokens, where no log tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """config: the target's text configuration; weights: its format, as costs name it, held what it was loaded with.

    shapes are ranked, equal ones only compared with each other. known: measured acceptances of trained shapes.
    configs: the candidates' text configurations.
    """

    config: Any
    weights: str
    held: str = ""
    shapes: Sequence[DraftShape] = ()
    equal: Sequence[DraftShape] = ()
    known: Sequence[tuple[DraftShape, float]] = ()
    candidates: Sequence[Candidate] = ()
    configs: Sequence[Any] = ()
    log: Sequence[LoggedAnswer] = ()
    prefix: int = PREFIX
    repeats: int = REPEATS

    def __post_init__(self) -> None:
        for _, acceptance in self.known:
            check_acceptance(acceptance)
        if self.candidates and not self.log:
            raise ValueError("candidates are judged by the target's answers: give a log, from forerun train answers")
        if not self.shapes and not self.candidates:
            raise ValueError(
                "there is nothing to compare: give a shape, or a candidate with a log, or leave the grid on"
            )

    @property
    def ticks(self) -> int:
        """How often design ticks."""
        return self.repeats + 2 + len(self.candidates) * len(self.log)


@dataclass(frozen=True, slots=True)
class Untrained:
    """A shape. covered: the share of the log's tokens in its vocabulary; acceptance is guessed, of such tokens or not.

    break_even and for_goal: the acceptances that it needs to be as fast as plain decoding, and GOAL times as fast.
    """

    shape: DraftShape
    size: Size
    times: DraftTimes
    covered: float
    acceptance: float
    prediction: Prediction
    break_even: float | None
    for_goal: float | None


@dataclass(frozen=True, slots=True)
class Trained:
    """A candidate; its rounds are those of the log."""

    candidate: Candidate
    shape: DraftShape
    size: Size
    times: DraftTimes
    on_log: CandidateOnLog
    prediction: Prediction


@dataclass(frozen=True, slots=True)
class Design:
    """shapes and candidates: the fastest by prediction first. shape_costs: None where no shapes were compared."""

    prefix: int
    loop: Loop
    estimate: AcceptanceEstimate
    shapes: tuple[Untrained, ...]
    candidates: tuple[Trained, ...]
    shape_costs: ShapeCosts | None


def design(engine: Engine, setup: Setup, tick: Callable[[], None] = lambda: None) -> Design:
    """Measure and predict; tick is called setup.ticks times. The engine is a plain one.

    Raises UnsupportedOption on a shape that is none of a draft's, a candidate with another tokenizer or a shorter context.
    """
    prefix = room_for(setup.prefix, engine.runner.max_length)
    on_log = [read_log_with(engine, one, setup.log, tick) for one in setup.candidates]
    shapes = distinct([*setup.shapes, *setup.equal])
    with ExitStack() as stack:
        drafts = list(_untrained(engine, setup, shapes, prefix))
        for number, one in enumerate(setup.candidates):
            _, drafter = stack.enter_context(one.on(engine).borrow(()))
            drafts.append((_key(number, one), drafter))
        measured = measure(engine.runner, drafts, (engine.name, setup.weights), prefix, tick, setup.repeats)
    times = {
        name: _with_reading(own, measured.reading.get(name, 0.0), setup, prefix)
        for name, own in measured.drafts.items()
    }
    loop = Loop(measured.verify, measured.plain, measure_overhead(engine, prefix))
    tick()
    trained = [
        _trained(setup, number, on_log, loop, times[_key(number, setup.candidates[number])])
        for number, on_log in enumerate(on_log)
    ]
    # many shapes share a vocabulary, and the log is long
    covered = cache(partial(_covered, setup))
    estimate = estimate_from(list(_measured(setup, trained, covered)))
    found = {shape: _judged(setup, shape, covered, estimate, loop, times[shape.name]) for shape in shapes}
    return Design(
        prefix=prefix,
        loop=loop,
        estimate=estimate,
        shapes=tuple(sorted((found[shape] for shape in distinct(setup.shapes)), key=_speed)),
        candidates=tuple(sorted(trained, key=_speed)),
        shape_costs=compare_shapes(
            [_row(found[shape]) for shape in setup.equal], [_row(one) for one in found.values()]
        ),
    )


def _with_reading(times: DraftTimes, ms: float, setup: Setup, prefix: int) -> DraftTimes:
    """ms: what reading `prefix` tokens takes; prompts and answers are as long as the log's."""
    prompt, answer = float(prefix), float(ANSWER)
    if setup.log:
        prompt = mean(one.start for one in setup.log)
        answer = mean(len(one.answer) for one in setup.log)
    # a round's own first forward comes with every round
    return replace(times, reading=max(ms - times.first.ms(1), 0.0) * prompt / prefix / answer)


def _key(number: int, candidate: Candidate) -> str:
    return f"candidate {number + 1} ({candidate.name})"


def _row(one: Untrained) -> Row:
    return one.shape, one.size.read, one.times.later


def _speed(one: Untrained | Trained) -> float:
    return -one.prediction.tokens_per_second


def _untrained(
    engine: Engine, setup: Setup, shapes: Sequence[DraftShape], prefix: int
) -> Iterator[tuple[str, Drafter]]:
    for shape in shapes:
        shape.check(setup.config)
    for deepest, alike in by_layer(shapes).items():
        runner = untrained(setup.config, deepest, engine, setup.held)
        for shape in alike:
            yield shape.name, UntrainedDraft(runner, plan_of(runner, shape), prefix)


def _trained(setup: Setup, number: int, on_log: CandidateOnLog, loop: Loop, times: DraftTimes) -> Trained:
    candidate, config = setup.candidates[number], setup.configs[number]
    own = DraftShape.of(config)
    shape = replace(own, vocabulary=min(candidate.vocabulary or own.vocabulary, own.vocabulary))
    weights = str(candidate.options.get("weights") or setup.weights)
    prediction = best(loop, times, on_log.draft.rounds)
    return Trained(candidate, shape, size_of(shape, config, weights), times, on_log, prediction)


def _measured(
    setup: Setup, trained: Sequence[Trained], covered: Callable[[int], float]
) -> Iterator[MeasuredAcceptance]:
    """What is known of acceptance: as if each draft could say every token."""
    whole = _whole(setup)
    for shape, acceptance in setup.known:
        size = size_of(shape, setup.config, setup.weights).layers
        yield MeasuredAcceptance(size / whole, min(acceptance / covered(shape.vocabulary), 1.0))
    for one in trained:
        yield MeasuredAcceptance(
            one.size.layers / whole, min(one.on_log.draft.acceptance / covered(one.shape.vocabulary), 1.0)
        )


def _whole(setup: Setup) -> int:
    """The parameters of the target's own layers."""
    return size_of(DraftShape.of(setup.config), setup.config, setup.weights).layers


def _covered(setup: Setup, size: int) -> float:
    """1 where no log tells what a vocabulary of this size misses."""
    vocabulary = int(setup.config.vocab_size)
    if not setup.log or size >= vocabulary:
        return 1.0
    return max(coverage(setup.log, size, vocabulary), 0.01)


def _judged(
    setup: Setup,
    shape: DraftShape,
    covered: Callable[[int], float],
    estimate: AcceptanceEstimate,
    loop: Loop,
    times: DraftTimes,
) -> Untrained:
    size, share = size_of(shape, setup.config, setup.weights), covered(shape.vocabulary)
    alpha = share * estimate.at(size.layers / _whole(setup))
    return Untrained(
        shape=shape,
        size=size,
        times=times,
        covered=share,
        acceptance=alpha,
        prediction=best(loop, times, lambda k: rounds_of(alpha, k)),
        break_even=needed(loop, times, 1.0),
        for_goal=needed(loop, times, GOAL),
    )
