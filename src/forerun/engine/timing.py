"""How long an answer took after its first token, so that a prompt's length does not count."""

from __future__ import annotations

from time import perf_counter

from .answer import Result
from .engine import Engine
from .prompts.prompt import Prompt
from .request import RequestOptions


def timed_answer(engine: Engine, prompt: Prompt, options: RequestOptions) -> tuple[Result, float]:
    """The answer, and the seconds from its first token to its end."""
    pieces = engine.stream(prompt, **options)
    last = next(pieces)
    begun = perf_counter()
    for piece in pieces:
        last = piece
    assert last.result is not None
    return last.result, perf_counter() - begun
