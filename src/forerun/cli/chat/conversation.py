"""A conversation with a model: what was said, and what the answers took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, final

from ...engine.answer import Piece, Result
from ...engine.engine import Engine
from ...engine.request import RequestOptions
from ...engine.stats import Stats

Message = Mapping[str, str]
MOST_TOKENS = 1024


@dataclass(slots=True)
class Total:
    """Answers of one kind together; seconds are those after the first token."""

    answers: int = 0
    seconds: float = 0.0
    stats: Stats = field(default_factory=Stats)

    def add(self, result: Result, seconds: float) -> None:
        self.answers += 1
        self.seconds += seconds
        self.stats.merge(result.stats)


@final
class Conversation:
    """Turns of a user and a model. Each prompt begins with the last one, whose keys and values the engine still has.

    before: messages that stay at the beginning. totals: of the answers with drafts, and of those without. Raises ValueError
    on options that no prompt can be answered with.
    """

    def __init__(self, engine: Engine, options: RequestOptions, before: Sequence[Message] = ()) -> None:
        self.speculate = options.get("speculate") is not False
        self.totals = {True: Total(), False: Total()}
        engine.prepare([*before, {"role": "user", "content": "a"}], {"max_new_tokens": MOST_TOKENS, **options})
        self._engine = engine
        self._options = options
        self._before = tuple(before)
        self._said: list[Message] = []

    def ask(self, text: str, show: Callable[[Piece], None], stopped: Callable[[], bool]) -> tuple[Result | None, float]:
        """Answer a text; the result, None where it was stopped, and the seconds after the first token.

        What a stopped answer had said stays in the conversation. Raises ValueError where the prompt can't be answered, which
        leaves the conversation as it was.
        """
        user = {"role": "user", "content": text}
        options: Any = {"max_new_tokens": MOST_TOKENS, **self._options, "speculate": self.speculate}
        written: list[str] = []
        begun, result = 0.0, None
        with closing(self._engine.stream([*self._before, *self._said, user], **options)) as pieces:  # type: ignore[type-var]
            for piece in pieces:
                begun = begun or perf_counter()
                written.append(piece.text)
                show(piece)
                result = piece.result
                if stopped():
                    break
        seconds = perf_counter() - begun
        self._said += [user, {"role": "assistant", "content": "".join(written)}]
        if result is not None:
            self.totals[self.speculate].add(result, seconds)
        return result, seconds

    def reset(self) -> None:
        """Forget what was said, but for the messages before."""
        self._said.clear()

    @property
    def turns(self) -> int:
        return len(self._said) // 2
