"""Plain decoding against speculation: the same questions by turns, A B A B, so that drift affects both alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Unpack

from ..engine.engine import Engine
from ..engine.prompts.questions import Question, has_chat_template
from ..engine.request import RequestOptions
from .comparison import Comparison, Side
from .difference import allowed_margin, first_difference
from .measure import Run, run_question

WARM_UP = 8


def compare(
    engines: Sequence[Engine],
    questions: Sequence[Question],
    options: RequestOptions,
    *,
    repeats: int = 5,
    seconds: float = math.inf,
    raw: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> list[Comparison]:
    """Each engine against plain decoding of the model that all of them share.

    One repeat asks the plain model and each engine every question by turns; before the first, a short answer to the
    first question warms all of them up. After the first, no repeat begins that would probably end after `seconds`.
    options are those of a request. raw passes texts on without a chat template. tick is called after each run. Raises
    ValueError where nothing can be measured.
    """
    _check(engines, questions, options, repeats)
    chat = not raw and has_chat_template(engines[0].tokenizer)
    options = {**options, "seed": options.get("seed") or 0}
    plainly: RequestOptions = {**options, "speculate": False}
    contenders = [(engines[0], plainly), *((engine, options) for engine in engines)]

    def ask(question: Question, **changes: Unpack[RequestOptions]) -> list[Run]:
        runs: list[Run] = []
        for engine, chosen in contenders:
            runs.append(run_question(engine, question, {**chosen, **changes}, chat))
            tick()
        return runs

    ask(questions[0], max_new_tokens=min(options.get("max_new_tokens") or WARM_UP, WARM_UP))
    begun = perf_counter()
    runs = [[ask(question) for question in questions]]
    while len(runs) < repeats and (perf_counter() - begun) * (1 + 1 / len(runs)) <= seconds:
        runs.append([ask(question) for question in questions])
    sides = [
        Side(tuple(tuple(question[index] for question in repeat) for repeat in runs))
        for index in range(len(contenders))
    ]
    if not all(any(run.decoded for run in repeat) for side in sides for repeat in side.repeats):
        raise ValueError("every answer ended with its first token, so there is nothing to time; take other prompts")
    return [
        _comparison(engine, sides[0], side, questions, options, chat)
        for engine, side in zip(engines, sides[1:], strict=True)
    ]


def _check(engines: Sequence[Engine], questions: Sequence[Question], options: RequestOptions, repeats: int) -> None:
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    if not engines or not questions:
        raise ValueError("a comparison needs at least one engine and one question")
    longest = options.get("max_new_tokens")
    if longest is not None and longest < 2:
        raise ValueError(f"max_new_tokens must be at least 2 to be timed, got {longest}")


def count_runs(engines: int, questions: Sequence[Question], repeats: int) -> int:
    """The number of runs that compare makes for this many engines, including the warm-up."""
    return (1 + engines) * (1 + repeats * len(questions))


def _comparison(
    engine: Engine,
    plain: Side,
    speculative: Side,
    questions: Sequence[Question],
    options: RequestOptions,
    chat: bool,
) -> Comparison:
    found = None
    for one, other in zip(plain.repeats, speculative.repeats, strict=True):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            found = found or first_difference(engine, number, questions[number], a, b, options, chat)
    return Comparison(
        plain=plain,
        speculative=speculative,
        difference=found,
        sampled=bool(options.get("do_sample") or options.get("temperature")),
        rounding_margin=allowed_margin(engine.runner),
    )
