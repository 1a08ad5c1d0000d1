"""Existing draft models: how often each is right on the target's log, and its perplexity there."""

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
from .log import DraftOnLog, LoggedAnswer, compare_with_log

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
class CandidateOnLog:
    """A candidate on the log. perplexity: of the answers, by its whole head; None where it has no token for some."""

    draft: DraftOnLog
    perplexity: float | None


def read_log_with(
    engine: Engine, candidate: Candidate, log: Sequence[LoggedAnswer], tick: Callable[[], None] = lambda: None
) -> CandidateOnLog:
    """Read the log with the draft; tick is called once an answer. Raises UnsupportedOption where an answer is too long."""
    draft = _draft_on_log(candidate.on(engine), candidate, log, tick)
    surprise = draft.surprise
    if surprise is None and candidate.vocabulary:
        surprise = _draft_on_log(candidate.on(engine, vocabulary=0), candidate, log, lambda: None).surprise
    return CandidateOnLog(draft, None if surprise is None else math.exp(surprise))


def _draft_on_log(
    drafting: Engine, candidate: Candidate, log: Sequence[LoggedAnswer], tick: Callable[[], None]
) -> DraftOnLog:
    right: list[tuple[bool, ...]] = []
    nats: list[float | None] = []
    for told, answer_nats in _read(drafting, candidate, log):
        right.append(tuple(told))
        nats.append(answer_nats)
        tick()
    known = [value for value in nats if value is not None]
    tokens = sum(len(one.answer) for one in log)
    return DraftOnLog(tuple(right), sum(known) / tokens if len(known) == len(nats) else None)


def _read(
    drafting: Engine, candidate: Candidate, log: Sequence[LoggedAnswer]
) -> Iterator[tuple[list[bool], float | None]]:
    for one in log:
        with drafting.borrow(one.ids[: one.start]) as (_, drafter):
            try:
                yield from drive(compare_with_log(drafter, one))
            except ValueError as error:
                raise UnsupportedOption(f"{candidate.name} can't read an answer of the log: {error}") from error
