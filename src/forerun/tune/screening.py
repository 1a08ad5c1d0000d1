"""Cheap screening: what a drafter would have gained on recorded greedy answers, without decoding.

A drafter with a model reads each answer once, teacher-forced. Its predictions after every token stand for its drafts there.
What copies is replayed on the tokens alone. With the costs of a drafted token and of the target's forwards by rows, rounds
of any length are then replayed (replay/simulate.py), so that runs of right tokens count as they occur.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.chance import Seeded
from ..core.cost import Cost, Point
from ..core.drafter import Drafter
from ..core.drive import Batch, drive
from ..core.identity import Identity, Pair
from ..core.values import Context, Signals
from ..engine.engine import Engine
from ..traces.read import Position, Trace, TracedAnswer, TraceHeader, position_of
from .branching import grown, prices_of
from .candidates import BRANCHED, SHAPES, DrafterConfig
from .replay.round_costs import RoundCosts
from .replay.simulate import Replay
from .skipping.match_rate import Recorded

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
DEPTH = max(LENGTHS)
RANKED = max(n for n, _ in SHAPES)
SHORTEST_PROMPT = 3  # what a drafter can read after

Positions = Sequence[Sequence[Position]]  # by answer, after each of its tokens but the last


@dataclass(frozen=True, slots=True)
class Screened:
    """A drafter's prediction. found: the share of positions where it drafts; match_rate: how often its first token is right.

    draft_cost is c, a drafted token's time over a plain forward's; speedups are over plain decoding, by LENGTHS. A tree's
    lengths are depths, and it is right where one of its first level's tokens is.
    """

    config: DrafterConfig
    found: float
    match_rate: float
    draft_cost: float
    speedups: tuple[float, ...]

    @property
    def best_length(self) -> int:
        """The shortest of the best."""
        return LENGTHS[self.speedups.index(max(self.speedups))]

    @property
    def speedup(self) -> float:
        return max(self.speedups)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.config.name,
            "method": self.config.method,
            "drafter": {"name": self.config.drafter, **self.config.options},
            "found": self.found,
            "match_rate": self.match_rate,
            "draft_cost": self.draft_cost,
            "best_length": self.best_length,
            "predicted_speedup": self.speedup,
            "predicted_by_length": dict(zip(map(str, LENGTHS), self.speedups, strict=True)),
        }


def read_answers(engine: Engine, answers: Sequence[Recorded]) -> dict[str, Any]:
    """The drafter's predictions after every token, their confidences, and its RANKED best tokens with probabilities.

    Lists by answer, from one or two forwards each. Raises UnsupportedOption where the drafter can't read.
    """
    batch: Batch[int, dict[str, list[Any]]] = Batch()
    with ExitStack() as stack:
        stack.callback(batch.close)
        for number, answer in enumerate(answers):
            _, drafter = stack.enter_context(engine.borrow(answer.ids[: answer.start]))
            batch.add(number, _read(drafter, answer))
        found = dict(batch.values())
    ordered = [found[number] for number in range(len(answers))]
    return {name: [one[name] for one in ordered] for name in ("said", "confidence", "ranked")}


async def _read(drafter: Drafter, answer: Recorded) -> AsyncGenerator[dict[str, list[Any]]]:
    rows = await drafter.read(answer.ids[:-1], answer.start)
    logits = rows.logits.float().log_softmax(-1)
    best, several = logits.max(-1), logits.topk(min(RANKED, logits.shape[-1]))
    yield {
        "said": best.indices.tolist(),
        "confidence": [round(value, 5) for value in best.values.exp().tolist()],
        "ranked": [
            [(token, round(value, 5)) for token, value in zip(tokens, values, strict=True)]
            for tokens, values in zip(several.indices.tolist(), several.values.exp().tolist(), strict=True)
        ],
    }


def positions_of_read(read: Mapping[str, Any], answers: Sequence[Recorded]) -> Positions:
    """The drafts that a reading stands for."""
    found: list[list[Position]] = []
    for answer, said, sure in zip(answers, read["said"], read["confidence"], strict=True):
        tokens = answer.ids[answer.start :]
        signals = [Signals(value, value, 1 - value, (value,)) for value in sure]
        # the last token of a round is the target's own, so the loop leaves room for it
        ends = [min(known + DEPTH, len(tokens) - 1) for known in range(len(tokens))]
        found.append(
            [
                position_of(tuple(said[known : ends[known]]), tuple(signals[known : ends[known]]), tokens[known:])
                for known in range(1, len(tokens))
            ]
        )
    return found


def positions_of_branched(
    read: Mapping[str, Any], answers: Sequence[Recorded], config: DrafterConfig, measured: Cost | None
) -> Positions:
    """The trees or graphs that a reading of what they branch stands for; measured: the runner's cost, where one is kept."""
    prices = prices_of(config, measured)
    found: list[list[Position]] = []
    for answer, ranked in zip(answers, read["ranked"], strict=True):
        tokens = answer.ids[answer.start :]
        found.append([])
        for known in range(1, len(tokens)):
            rankings = ranked[known : min(known + DEPTH, len(tokens) - 1)]
            branches = grown(rankings, tokens[known:], config, prices)
            found[-1].append(position_of((), (), tokens[known:], None, branches))
    return found


def positions_of_copying(engine: Engine, answers: Sequence[Recorded]) -> Positions:
    """What a drafter without forwards drafts before it has learnt anything."""
    return [list(_copied(engine, answer)) for answer in answers]


def _copied(engine: Engine, answer: Recorded) -> Iterator[Position]:
    context = Context(list(answer.ids[: answer.start]), Seeded(0))
    context.remember = False
    with engine.borrow(context.ids) as (_, drafter):
        for known in range(answer.start + 1, len(answer.ids)):
            context.ids.append(answer.ids[known - 1])
            (drafted,) = drive(_drafted(drafter, context, min(DEPTH, len(answer.ids) - known - 1)))
            yield position_of(drafted, (None,) * len(drafted), answer.ids[known:])


async def _drafted(drafter: Drafter, context: Context, most: int) -> AsyncGenerator[tuple[int, ...]]:
    tokens: list[int] = []
    async with aclosing(drafter.draft(context)) as steps:
        while len(tokens) < most and (step := await anext(steps, None)) is not None:
            tokens += step.tokens
    yield tuple(tokens)


def positions_of_hybrid(first: Positions, then: Positions) -> Positions:
    """As if the first drafted wherever it finds something; the cascade that runs chooses by what rounds took."""
    return [
        [one if one.drafted else other for one, other in zip(mine, others, strict=True)]
        for mine, others in zip(first, then, strict=True)
    ]


def checked_step(copied: Positions, step_ms: float) -> float:
    """What a drafted token costs where guesses that begin right save a forward, and those that begin wrong cost nothing."""
    every = [position for answer in copied for position in answer]
    right = sum(position.agreed > 0 for position in every)
    return step_ms / (1 + right / len(every)) if every else step_ms


@dataclass(frozen=True, slots=True, eq=False)
class Screen:
    """Recorded answers and the target's cost, to screen drafters on."""

    answers: Sequence[Recorded]
    target: Cost

    def screened(self, config: DrafterConfig, positions: Positions, step_ms: float) -> Screened:
        """The predicted speed-up of every fixed length."""
        branched = config.method in BRANCHED
        replay = self.replay(positions, step_ms, branched)
        counts = [len(answer.positions) for answer in replay.trace.answers]
        speedups = tuple(replay.planned([[length] * count for count in counts]).speedup for length in LENGTHS)
        every = [place for number in range(len(counts)) for place in replay.draft_points(number)[:-1]]
        drafting = [place for place in every if place.steps]
        right = sum(bool(place.path) for place in drafting)
        return Screened(
            config,
            len(drafting) / len(every) if every else 0.0,
            right / len(drafting) if drafting else 0.0,
            step_ms / self.target.ms(1),
            speedups,
        )

    def replay(self, positions: Positions, step_ms: float, branched: bool = False) -> Replay:
        """Under the target's cost; a drafter's forward of more rows takes as much longer as the target's."""
        about = self.target.model, self.target.runner, self.target.weights
        draft = Cost(*about, "draft", (Point(1, 0, step_ms), Point(2, 0, 2 * step_ms))) if step_ms > 0 else None
        traced = tuple(
            TracedAnswer(
                str(number), "all", one.ids[: one.start], one.ids[one.start :], len(one.ids) - one.start, tuple(own)
            )
            for number, (one, own) in enumerate(zip(self.answers, positions, strict=True))
        )
        costs = RoundCosts("screening", self.target, draft, real=True, width=self.target)
        return Replay(Trace(Path(), _HEADER, traced), costs, branched)


# a replay asks a header for the depth alone; nothing of this trace is kept
_HEADER = TraceHeader("", Pair(Identity("", 0, 0, 0, ""), ""), "", {}, DEPTH, 1, 0, False, 0, None, {})
