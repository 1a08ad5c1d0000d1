"""One question, answered once, with its time.

Tokens a second are the decoded tokens over the time after the first token, so a prompt's length does not count. Nothing
is kept between runs, so a draft model's reading of the prompt counts each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.answer import Result
from ..engine.engine import Engine
from ..engine.prompts.questions import Question
from ..engine.request import RequestOptions
from ..engine.timing import timed_answer


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The answers to a question's turns; decoded counts their tokens after the first of each, in `seconds`."""

    answers: tuple[Result, ...]
    seconds: float

    @property
    def ids(self) -> tuple[tuple[int, ...], ...]:
        return tuple(answer.ids for answer in self.answers)

    @property
    def decoded(self) -> int:
        return sum(answer.stats.decoded for answer in self.answers)


def run_question(engine: Engine, question: Question, options: RequestOptions, chat: bool) -> Run:
    """Answer the question's turns, each after the answers to the ones before. Nothing is kept for another question."""
    engine.forget()
    options = {**options, "remember": False}  # asked again, it would be copied
    answers: list[Result] = []
    seconds = 0.0
    for _ in question.turns:
        prompt = question.ids([answer.text or "" for answer in answers], chat, engine.tokenizer)
        answer, spent = timed_answer(engine, prompt, options)
        answers.append(answer)
        seconds += spent
    return Run(tuple(answers), seconds)
