"""Measures the cost of forwards on this machine: by rows, after a short and a long prefix, for a model and its drafts.

The forwards of all subjects run repeatedly in shuffled order, so that noise affects all alike. A point is the median. Plans
read the prefix of the full model, as they do when they draft.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from ..core.cost import Cost, Costs, Point
from ..core.drive import drive
from ..core.values import ROOT
from ..models.packed.plan import FULL, LayerPlan
from ..models.packed.runner import HFRunner, Runner
from ..models.packed.sequence import Sequence as TokenSequence
from .comparison import spread

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 128, 512)
MANY = 32
SHORT, LONG = 64, 1024
REPEATS, REPEATS_OF_MANY = 9, 3


@dataclass(frozen=True, slots=True)
class Subject:
    """A runner with a plan. model: its name in a Cost; own_weights: the format that the model was loaded in."""

    runner: Runner
    model: str
    own_weights: str
    plan: LayerPlan = FULL

    @property
    def weights(self) -> str:
        return self.plan.weights or self.own_weights

    @property
    def plan_name(self) -> str:
        plan = self.plan
        parts = [
            f"{kind} {','.join(map(str, sorted(layers)))}"
            for kind, layers in (("attention", plan.attention), ("mlp", plan.mlp))
            if layers
        ]
        name = (
            "full" if not parts else f"skip {' '.join(parts)}" if plan.exit_layer is None else f"exit {plan.exit_layer}"
        )
        head = f", head {plan.head}" if plan.head else ""
        return f"{name}{head}, {plan.activations}-bit activations" if plan.activations else f"{name}{head}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.weights, self.plan_name


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """One point to measure: a subject's forward of this many rows after a prefix that is already computed."""

    subject: int
    sequence: TokenSequence
    rows: int
    prefix: int


def measure(
    subjects: Sequence[Subject],
    tick: Callable[[], None] = lambda: None,
    repeats: int = REPEATS,
    *,
    rows: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
) -> Costs:
    """The costs of the subjects, in their order. tick is called once a repeat, repeats + 1 times in all.

    rows: ROWS if None; lengths: those of the prefixes, a short and a long one if None. Points of more than 32 rows
    are measured 3 times. Points that don't fit a model's context are left out. Runners don't pad meanwhile.
    """
    with _unpadded([subject.runner for subject in subjects]):
        return _measure(subjects, list(_places(subjects, rows or ROWS, lengths)), tick, repeats)


@contextmanager
def _unpadded(runners: Sequence[Runner]) -> Iterator[None]:
    padding = {runner: runner.padding for runner in runners if isinstance(runner, HFRunner)}
    try:
        for runner in padding:
            runner.padding = None
        yield
    finally:
        for runner, rows in padding.items():
            runner.padding = rows


def _measure(subjects: Sequence[Subject], places: Sequence[_Place], tick: Callable[[], None], repeats: int) -> Costs:
    times: dict[int, list[float]] = {number: [] for number in range(len(places))}
    shuffle = random.Random(0).shuffle
    for repeat in range(-1, repeats):
        turn = [n for n, place in enumerate(places) if place.rows <= MANY or repeat < REPEATS_OF_MANY]
        shuffle(turn)
        for number in turn:
            spent = _forward(places[number], subjects[places[number].subject].plan)
            if repeat >= 0:
                times[number].append(1000 * spent)
        tick()
    points: list[list[Point]] = [[] for _ in subjects]
    for number, place in enumerate(places):
        low, high = spread(times[number])
        points[place.subject].append(Point(place.rows, place.prefix, median(times[number]), high - low))
    return Costs(
        tuple(
            Cost(one.model, type(one.runner).__name__, one.weights, one.plan_name, tuple(measured))
            for one, measured in zip(subjects, points, strict=True)
        )
    )


def prefixes(max_length: int | None) -> tuple[int, ...]:
    """A short and a long prefix that leave room for 32 rows, or as much as fits."""
    room = LONG if max_length is None else max(max_length - MANY, 1)
    return tuple(sorted({min(SHORT, room), min(LONG, room)}))


def _places(subjects: Sequence[Subject], counts: Sequence[int], lengths: Sequence[int] | None) -> Iterator[_Place]:
    sequences: dict[tuple[int, int], TokenSequence] = {}
    for number, subject in enumerate(subjects):
        limit = subject.runner.max_length
        for prefix in prefixes(limit) if lengths is None else lengths:
            key = id(subject.runner), prefix
            if key not in sequences:
                sequences[key] = TokenSequence(subject.runner)
                list(drive(_read(sequences[key], prefix)))
            for rows in counts:
                if limit is None or prefix + rows <= limit:
                    yield _Place(number, sequences[key], rows, prefix)


def _tokens(runner: Runner, count: int) -> list[int]:
    return [(7 * i + 3) % runner.vocab_size for i in range(count)]


async def _read(sequence: TokenSequence, prefix: int) -> AsyncGenerator[int]:
    await sequence.sync(_tokens(sequence.runner, prefix))
    yield prefix


def _forward(place: _Place, plan: LayerPlan) -> float:
    (spent,) = drive(_timed(place.sequence, place.rows, plan))
    return spent


async def _timed(sequence: TokenSequence, count: int, plan: LayerPlan) -> AsyncGenerator[float]:
    tokens, parents = _tokens(sequence.runner, count), range(ROOT, count - 1)
    begun = perf_counter()
    if plan == FULL:
        rows = await sequence.complete(tokens, parents)
    else:
        rows = await sequence.forward(tokens, parents, plan)
    # reading a number waits until a GPU is done
    float(rows.logits[-1, 0])
    spent = perf_counter() - begun
    sequence.drop()
    yield spent
