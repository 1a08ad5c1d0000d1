"""Draft models that exist: how often each is right on the target's log, and how well it models the log's text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.drive import drive
from ..engine.engine import Engine
from ..errors import UnsupportedOption
from ..models.files.draft import read_draft
from .log import Heard, Logged, hear

DRAFT_MODEL = "draft_model"
VOCABULARY = "vocabulary"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft model by name or path, and options of the drafter draft_model."""

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        short = Path(self.model).name or self.model
        return ",".join([short, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def vocabulary(self) -> int:
        """Among how many tokens it drafts, 0 for all."""
        if (given := self.options.get(VOCABULARY)) is not None:
            return int(given)
        trained = read_draft(self.model)
        return 0 if trained is None else trained.vocabulary

    def on(self, engine: Engine, **changes: Any) -> Engine:
        """The engine's model with this draft; raises what Engine.using raises, on another tokenizer for one."""
        return engine.using(DRAFT_MODEL, drafter_options={"model": self.model, **self.options, **changes})


@dataclass(frozen=True, slots=True)
class Listened:
    """A candidate on the log. perplexity: of the answers, by its whole head; None where it has no token for some."""

    heard: Heard
    perplexity: float | None


def listen(
    engine: Engine, candidate: Candidate, log: Sequence[Logged], tick: Callable[[], None] = lambda: None
) -> Listened:
    """Read the log with the draft; tick is called once an answer. Raises UnsupportedOption where an answer is too long."""
    heard = _heard(candidate.on(engine), candidate, log, tick)
    surprise = heard.surprise
    if surprise is None and candidate.vocabulary:
        surprise = _heard(candidate.on(engine, vocabulary=0), candidate, log, lambda: None).surprise
    return Listened(heard, None if surprise is None else math.exp(surprise))


def _heard(drafting: Engine, candidate: Candidate, log: Sequence[Logged], tick: Callable[[], None]) -> Heard:
    right: list[tuple[bool, ...]] = []
    nats: list[float | None] = []
    for told, answer_nats in _read(drafting, candidate, log):
        right.append(tuple(told))
        nats.append(answer_nats)
        tick()
    known = [value for value in nats if value is not None]
    tokens = sum(len(one.answer) for one in log)
    return Heard(tuple(right), sum(known) / tokens if len(known) == len(nats) else None)


def _read(drafting: Engine, candidate: Candidate, log: Sequence[Logged]) -> Iterator[tuple[list[bool], float | None]]:
    for one in log:
        with drafting.borrow(one.ids[: one.start]) as (_, drafter):
            try:
                yield from drive(hear(drafter, one))
            except ValueError as error:
                raise UnsupportedOption(f"{candidate.name} can't read an answer of the log: {error}") from error
