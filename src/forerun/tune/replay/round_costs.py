"""The costs of one drafter's rounds on this machine: milliseconds of verification by rows, and of drafting by steps.

They are measured on whole rounds, not on single forwards, since a draft causes or saves work elsewhere: a draft model reads
the accepted tokens later, and verification continues from an early exit's states. The rest of a round, such as decoding
text, counts as verification; plain decoding has it too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import final

from ...bench.comparison import spread
from ...core.cost import Cost, Costs, Point
from ...core.drafter import Drafter
from ...core.policy import LengthPolicy
from ...core.values import Round, Step
from ...engine.engine import Engine
from ...engine.request import RequestOptions
from ...engine.timing import timed_answer
from ...models.packed.sequence import Sequence as Target
from ...traces.read import Trace

LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12)
FEWEST = 3
MAX_NEW_TOKENS = 32
WARM_UP = 8
NOT_MEASURED = 1e-3


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """The target's cost by rows, verification of k drafted tokens having k + 1, and drafting's by steps.

    read: what the first draft of an answer costs more, by the prompt's tokens. None is free, and so is a step that computed
    no law (lookup beside another drafter) if `only_laws`. real: milliseconds of a machine, not units. width: what the
    drafter's forwards cost by rows, in any unit; without it drafting's cost holds for the rows that its forwards have.
    """

    name: str
    target: Cost
    draft: Cost | None
    read: Cost | None = None
    only_laws: bool = True
    real: bool = False
    width: Cost | None = None

    def verify_ms(self, rows: int, prefix: float) -> float:
        return self.target.ms(rows, prefix)

    def forwards(self, rows: Sequence[int]) -> float:
        """How many forwards of one row take as long as the drafter's forwards of so many rows."""
        if self.width is None:
            return len(rows)
        return sum(self.width.ms(count) for count in rows) / self.width.ms(1)

    def draft_ms(self, steps: float, prefix: float) -> float:
        return 0.0 if self.draft is None else self.draft.ms(steps, prefix)

    def read_ms(self, prompt_tokens: int) -> float:
        return 0.0 if self.read is None else self.read.ms(prompt_tokens)

    def pays(self, step: Step) -> bool:
        """Whether a drafted step costs anything."""
        return step.signals is not None or not self.only_laws


def constant(c: float, rows: float = 0.0) -> RoundCosts:
    """The literature's: each verification costs 1 and each forward of the drafter c.

    rows: the cost of each further row of a forward, as a share of the forward, the target's or the drafter's.
    """
    for name, value in (("c", c), ("rows", rows)):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be at least 0 and finite, got {value}")
    about = ("any", "any", "any")
    target = Cost(*about, "full", (Point(1, 0, 1.0), Point(2, 0, 1.0 + rows)))
    draft = Cost(*about, "draft", (Point(1, 0, c), Point(2, 0, 2 * c))) if c else None
    return RoundCosts(f"c={c:g} rows={rows:g}" if rows else f"c={c:g}", target, draft, width=target)


def calibrated(trace: Trace, branches: bool = False) -> RoundCosts:
    """Those measured when the trace was made, for its chains or its trees. Raises ValueError where there are none."""
    costs = trace.header.costs
    if costs is None:
        raise ValueError(f"{trace.path} holds no measured costs: take c=0.1, say, or trace with --cost-prompts 3")
    by_kind = {cost.plan.partition(" ")[0]: cost for cost in costs.costs}
    draws = any(signals is not None for answer in trace.answers for one in answer.positions for signals in one.signals)
    draft = by_kind.get("branched" if branches else "draft")
    return RoundCosts("calibrated", costs.target, draft, by_kind.get("read"), draws, real=True)


def costs_of(name: str, trace: Trace, branches: bool = False) -> RoundCosts:
    """ "calibrated", for the trace's chains or its trees, "c=0.1" or "c=0.1 rows=0.02". Raises ValueError on any other."""
    if name == "calibrated":
        return calibrated(trace, branches)
    values = dict(part.split("=", 1) for part in name.split() if "=" in part)
    try:
        if "c" not in values or values.keys() - {"c", "rows"} or len(values) != len(name.split()):
            raise ValueError("no such costs")
        return constant(*(float(values.get(key, 0)) for key in ("c", "rows")))
    except ValueError as error:
        raise ValueError(
            "costs must be calibrated, or c= and a number from 0 on such as c=0.1, with the price of a row such as "
            f"c=0.1 rows=0.02 if it has one; got {name!r}"
        ) from error


@final
class _Watched(LengthPolicy):
    """Stops after k steps and records each round."""

    def __init__(self, k: int, note: Callable[[Round], None]) -> None:
        self._k = k
        self._note = note

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) >= self._k

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._k - len(steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._note(round)


@dataclass(frozen=True, slots=True)
class _Sample:
    """One round's milliseconds. first: of its answer. steps: tokens of a chain, forwards of a drafter that branches."""

    first: bool
    prompt: int
    prefix: int
    drafted: int
    steps: int
    forwards: bool
    draft: float
    verify: float


def measure(
    engine: Engine,
    drafter: str,
    prompts: Sequence[Sequence[int]],
    depth: int,
    *,
    weights: str,
    max_new_tokens: int = MAX_NEW_TOKENS,
    repeats: int = 2,
    tick: Callable[[], None] = lambda: None,
) -> Costs:
    """Answer the prompts with every draft length of LENGTHS up to depth, in shuffled order; medians by rows and prompt.

    Of a drafter that branches another one, both are measured: the other's chain as draft, its own drafts as branched, by
    their forwards, whatever the rows of these. tick is called after each answer, count_answers times. Raises ValueError
    where no answer has a second token.
    """
    runs = [(prompt, k) for _ in range(repeats) for prompt in prompts for k in lengths(depth)]
    random.Random(0).shuffle(runs)
    chains, trees = _chains_of(engine, prompts[0])
    samples: dict[bool, list[_Sample]] = {False: [], True: []}
    for one in (chains, trees):
        if one is not None:
            list(_answer(one, prompts[0], depth, WARM_UP))
    for prompt, k in runs:
        samples[False] += _answer(chains, prompt, k, max_new_tokens)
        if trees is not None:
            samples[True] += _answer(trees, prompt, k, max_new_tokens)
        tick()
    every = samples[False] + samples[True]
    if not every:
        raise ValueError("no answer had a second token, so there is no round to measure; take other prompts")
    about = (engine.name, type(engine.runner).__name__, weights)
    costs = [Cost(*about, "full", tuple(_points(every, lambda one: one.drafted + 1, lambda one: one.verify)))]
    paid, later = _drafting(samples[False])
    if later:
        draft = Cost(*about, f"draft {drafter}", later)
        costs.append(draft)
        first = [replace(one, prefix=0) for one in paid if one.first]
        more = tuple(_points(first, lambda one: one.prompt, lambda one: one.draft - draft.ms(one.steps, one.prompt)))
        costs += [Cost(*about, f"read {drafter}", more)] if more else []
    branched = _drafting(samples[True])[1]
    costs += [Cost(*about, f"branched {drafter}", branched)] if branched else []
    return Costs(tuple(costs))


def _chains_of(engine: Engine, prompt: Sequence[int]) -> tuple[Engine, Engine | None]:
    """The engine of the chains, and that of the trees where the engine's drafter branches another one."""
    with engine.borrow(prompt) as (_, drafter):
        if drafter.inner is None:
            return engine, None

    def inner(target: Target) -> Drafter:
        made = engine.drafter(target)
        return made.inner or made

    return engine.using(inner), engine


def _drafting(samples: Sequence[_Sample]) -> tuple[list[_Sample], tuple[Point, ...]]:
    """The rounds that paid for a draft, and what those after an answer's first one took, by steps."""
    paid = [one for one in samples if one.drafted and (one.forwards or not any(other.forwards for other in samples))]
    later = [one for one in paid if not one.first]
    return paid, tuple(_points(later, lambda one: one.steps, lambda one: one.draft))


def lengths(depth: int) -> list[int]:
    """The draft lengths that are measured."""
    return sorted({min(length, depth) for length in LENGTHS})


def count_answers(prompts: int, depth: int, repeats: int = 2) -> int:
    """How many answers measure makes of this many prompts."""
    return prompts * len(lengths(depth)) * repeats


def spread_out(prompts: Sequence[Sequence[int]], count: int) -> list[Sequence[int]]:
    """So many prompts, from the shortest to the longest."""
    ordered = sorted(prompts, key=len)
    if count >= len(ordered):
        return list(ordered)
    return [ordered[round(i * (len(ordered) - 1) / max(count - 1, 1))] for i in range(count)]


def _answer(engine: Engine, prompt: Sequence[int], k: int, max_new_tokens: int) -> Iterator[_Sample]:
    """The rounds of one answer; unaccounted time is spread over them."""
    noted: list[tuple[Round, int]] = []
    made: list[Drafter] = []

    def make(target: Target) -> Drafter:
        made.append(engine.drafter(target))
        return made[-1]

    def note(round: Round) -> None:
        branches = bool(made) and made[-1].inner is not None  # plain answers have no drafter
        noted.append((round, len(made[-1].forwards) if branches else len(round.draft)))

    options: RequestOptions = {"max_new_tokens": max_new_tokens, "ignore_eos": True, "speculate": k > 0}
    engine.forget()
    watched = engine.using(make, lambda: _Watched(k, note))
    _, seconds = timed_answer(watched, list(prompt), options)
    if not noted:
        return
    rest = max(seconds - sum(one.timing.draft + one.timing.verify for one, _ in noted), 0.0) / len(noted)
    middle = len(prompt) + max_new_tokens // 2
    for number, (one, steps) in enumerate(noted):
        timing = one.timing
        yield _Sample(
            first=number == 0,
            prompt=len(prompt),
            prefix=middle,
            drafted=len(one.draft),
            steps=steps,
            forwards=timing.draft_forward > 0,
            draft=1e3 * timing.draft,
            verify=1e3 * (timing.verify + rest),
        )


def _points(
    samples: Sequence[_Sample], rows: Callable[[_Sample], int], ms: Callable[[_Sample], float]
) -> Iterator[Point]:
    """Medians where there are enough samples; of the commonest place alone where there are not."""
    places: dict[tuple[int, int], list[float]] = {}
    for one in samples:
        places.setdefault((rows(one), one.prefix), []).append(ms(one))
    most = max(map(len, places.values()), default=0)
    for (count, prefix), values in sorted(places.items()):
        if len(values) >= min(FEWEST, most):
            low, high = spread(values)
            yield Point(count, prefix, max(median(values), NOT_MEASURED), high - low)
