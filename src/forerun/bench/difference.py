"""Where two outputs differ first, and whether rounding can explain it.

A forward of several rows adds numbers in another order than one of a single row. In float32 on a CPU that never changed a
token in any test here, so a difference counts as a bug. In 16 bits it can change a near-tie: the plain run then preferred
its token by no more than a few steps of the number format. A difference against a clear preference is a bug.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..engine.answer import TokenLogprob
from ..engine.engine import Engine
from ..engine.prompts.questions import Question
from ..engine.request import RequestOptions
from ..models.packed.runner import Runner
from .measure import Run, run_question

# how many of the plain run's best tokens are searched for the other run's token
CANDIDATES = 16
# eight steps of the number format for logits between 16 and 32: each of two logits may be off by a few
STEPS = 128


@dataclass(frozen=True, slots=True)
class Difference:
    """The first differing token of a question. margin: by how much log-probability the plain run preferred its own."""

    question: int
    turn: int
    position: int
    plain: int | None
    speculative: int | None
    margin: float


def rounding_margin(dtype: torch.dtype, device: torch.device) -> float:
    """The largest margin that rounding explains; 0 for float32 and float64 on a CPU."""
    if device.type == "cpu" and dtype in (torch.float32, torch.float64):
        return 0.0
    return STEPS * torch.finfo(dtype).eps


def allowed_margin(runner: Runner) -> float:
    """The largest margin that is no bug with this runner: 0 where rows have the same bits in any company."""
    return 0.0 if runner.same_bits else rounding_margin(runner.dtype, runner.device)


def shared_length(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many leading tokens are equal."""
    same = (a == b for a, b in zip(one, other, strict=False))
    return next((position for position, equal in enumerate(same) if not equal), min(len(one), len(other)))


def first_difference(
    engine: Engine,
    number: int,
    question: Question,
    plain: Run,
    speculative: Run,
    options: RequestOptions,
    chat: bool,
) -> Difference | None:
    """Where the two runs of question `number` differ first; the plain run is repeated up to there to get its margin."""
    for turn, (one, other) in enumerate(zip(plain.ids, speculative.ids, strict=True)):
        if one != other:
            at = shared_length(one, other)
            mine, theirs = (ids[at] if at < len(ids) else None for ids in (one, other))
            margin = math.inf
            if mine is not None and theirs is not None:
                again = Question(question.turns[: turn + 1], question.before)
                margin = _margin(engine, again, at, mine, theirs, options, chat)
            return Difference(number, turn, at, mine, theirs, margin)
    return None


def _margin(
    engine: Engine, question: Question, at: int, mine: int, theirs: int, options: RequestOptions, chat: bool
) -> float:
    """log p(mine) - log p(theirs) in the plain run; at least the gap to its last candidate if theirs is not among them."""
    plain: RequestOptions = {**options, "speculate": False, "logprobs": CANDIDATES, "processed_logprobs": True}
    logprobs = run_question(engine, question, plain, chat).answers[-1].logprobs
    assert logprobs is not None
    return preferred_by(logprobs, at, mine, theirs)


def preferred_by(logprobs: Sequence[TokenLogprob], at: int, mine: int, theirs: int) -> float:
    """log p(mine) - log p(theirs) at a position; infinite where theirs is impossible, and where the text is shorter."""
    if at >= len(logprobs):
        return math.inf
    top = dict(logprobs[at].top)
    least = min(top.values())
    other = top.get(theirs, least if len(top) >= CANDIDATES else -math.inf)
    return top.get(mine, least) - other
