"""Records a trace: the target answers plainly, and at every token the drafter's draft is recorded and discarded.

It uses the ordinary loop: the recorder is a drafter that runs another drafter and returns no draft. So the inner drafter
sees the same text, states and scratch rows as at the beginning of a real round.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

import torch
from safetensors.torch import save_file
from torch import Tensor

from ..bench.suite import read_suite
from ..core.drafter import Drafter
from ..core.values import Context, Signals, Step
from ..engine.engine import Engine
from ..engine.prompts.questions import has_chat_template
from ..engine.request import RequestOptions
from ..jsonl import Lines
from ..models.packed.sequence import Sequence as Target
from ..policies.base import signals_of
from .branches import Level, branches_of
from .read import Position, TracedAnswer, TraceHeader, answer_as_dict, hidden_folder, position_of


@dataclass(frozen=True, slots=True)
class TracedPrompt:
    """A prompt to answer; equal prompts have the same name."""

    name: str
    category: str
    ids: tuple[int, ...]


@dataclass(slots=True)
class _Noted:
    """The drafts after one text's tokens so far, by the number of new tokens known."""

    drafted: dict[int, tuple[int, ...]] = field(default_factory=dict)
    signals: dict[int, tuple[Signals | None, ...]] = field(default_factory=dict)
    hidden: dict[int, list[Tensor]] = field(default_factory=dict)
    branches: dict[int, tuple[list[Level], Sequence[int]]] = field(default_factory=dict)


@final
class Recorder(Drafter):
    """Records up to depth steps of the inner drafter, and drafts nothing itself.

    If the inner drafter branches another one, both drafts are recorded, the other's as a chain.
    """

    def __init__(
        self, inner: Drafter, target: Target, header: TraceHeader, notes: dict[tuple[int, ...], _Noted]
    ) -> None:
        self.taps = inner.taps
        self._inner = inner
        self._target = target
        self._header = header
        self._notes = notes

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        noted = self._notes.setdefault(tuple(context.ids[: context.prompt_length]), _Noted())
        most = min(self._header.depth, context.room - 1)
        chained = self._inner
        if chained.inner is not None:
            noted.branches[len(context.ids) - context.prompt_length] = await self._branches(chained, context, most)
            self._target.drop()  # a chain that the target drafts itself begins without scratch rows
            chained = chained.inner
        steps: list[Step] = []
        async with aclosing(chained.draft(context)) as source:
            while len(steps) < most and (step := await anext(source, None)) is not None:
                if len(step.tokens) != 1:
                    raise ValueError(
                        f"traces hold chains, and this drafter drafts {len(step.tokens)} tokens in a step; of drafters that "
                        "branch, tree and graph alone can be traced"
                    )
                steps.append(step)
                if step.tokens[0] in context.eos:
                    break
        self._note(noted, context, steps)
        for step in steps[:0]:  # the round stays plain
            yield step

    async def _branches(self, drafter: Drafter, context: Context, most: int) -> tuple[list[Level], Sequence[int]]:
        """The levels, and the rows of the forwards that made them."""
        levels: list[Level] = []
        seen = 0
        async with aclosing(drafter.draft(context)) as source:
            while len(levels) < most:
                step = await anext(source, None)
                forwards = tuple(drafter.forwards[seen:])
                seen = len(drafter.forwards)
                if step is None:
                    return levels, forwards
                signals = signals_of(step, self._header.top)
                levels.append(
                    Level(step.tokens, step.parents, signals, forwards, step.counts.merged, step.counts.saved)
                )
                if all(token in context.eos for token in step.tokens):
                    break
        return levels, ()

    def close(self) -> None:
        self._inner.close()

    def _note(self, noted: _Noted, context: Context, steps: list[Step]) -> None:
        known = len(context.ids) - context.prompt_length
        noted.drafted[known] = tuple(step.tokens[0] for step in steps)
        noted.signals[known] = tuple(signals_of(step, self._header.top) for step in steps)
        if self._header.hidden:
            noted.hidden[known] = [_hidden_of(step) for step in steps]


def _hidden_of(step: Step) -> Tensor:
    if step.hidden is None:
        raise ValueError("this drafter has no hidden states to keep; trace without --hidden")
    return step.hidden[-1:].to("cpu")


def read_prompts(
    engine: Engine, file: Path, *, per_category: int | None, skip: int, max_prompt: int, raw: bool
) -> list[TracedPrompt]:
    """Of each category of a suite, per_category prompts of at most max_prompt tokens after the first `skip` of them."""
    chat = not raw and has_chat_template(engine.tokenizer)
    by_category: dict[str, dict[tuple[int, ...], None]] = {}
    for item in read_suite(file):
        ids = tuple(item.question.ids((), chat, engine.tokenizer))
        if len(ids) <= max_prompt:
            by_category.setdefault(item.category, {}).setdefault(ids)
    last = None if per_category is None else skip + per_category
    asked = [
        TracedPrompt(_name(ids), category, ids)
        for category, items in by_category.items()
        for ids in list(items)[skip:last]
    ]
    if not asked:
        raise ValueError(f"{file} holds no prompt of at most {max_prompt} tokens after the first {skip} of a category")
    return asked


def _name(ids: tuple[int, ...]) -> str:
    return hashlib.sha256(repr(ids).encode()).hexdigest()[:16]


def trace(
    engine: Engine, header: TraceHeader, path: Path, asked: Sequence[TracedPrompt], max_batch: int = 8
) -> Iterator[tuple[int, int]]:
    """Add the answers that the file lacks, with the engine's drafter.

    Yields (answers there, answers in all), for the first time before any is made. Raises ValueError where the file holds a
    trace of something else.
    """
    with Lines(path) as lines:
        if lines.known:
            header = _same(TraceHeader.from_dict(lines.known[0]), header, path)
        else:
            lines.write(header.as_dict())
        known = {str(value.get("name")) for value in lines.known[1:]}
        missing = [one for one in asked if one.name not in known]
        done = len(asked) - len(missing)
        yield done, len(asked)
        notes: dict[tuple[int, ...], _Noted] = {}
        recording = engine.using(lambda target: Recorder(engine.drafter(target), target, header, notes))
        options: RequestOptions = {"max_new_tokens": header.max_new_tokens}
        for index, result in recording.each(((list(one.ids), options) for one in missing), max_batch=max_batch):
            one = missing[index]
            noted = notes.pop(one.ids, _Noted())
            answer = _answer(one, result.ids, noted, engine, header)
            if header.hidden:
                _save_hidden(hidden_folder(path), answer)
            lines.write(answer_as_dict(answer))
            done += 1
            yield done, len(asked)


def _answer(
    asked: TracedPrompt, tokens: tuple[int, ...], noted: _Noted, engine: Engine, header: TraceHeader
) -> TracedAnswer:
    positions = tuple(_position(noted, known, tokens) for known in range(1, len(tokens)))
    limit = engine.runner.max_length
    room = header.max_new_tokens if limit is None else min(header.max_new_tokens, limit - len(asked.ids))
    return TracedAnswer(asked.name, asked.category, asked.ids, tokens, room, positions)


def _position(noted: _Noted, known: int, tokens: tuple[int, ...]) -> Position:
    """The draft when this many tokens of the answer were known; empty if there was no room for one."""
    hidden = noted.hidden.get(known)
    rows = torch.cat(hidden) if hidden else None
    follow, branched = tokens[known:], noted.branches.get(known)
    branches = None if branched is None else branches_of(*branched, follow)
    return position_of(noted.drafted.get(known, ()), noted.signals.get(known, ()), follow, rows, branches)


def _save_hidden(folder: Path, answer: TracedAnswer) -> None:
    """All rows of an answer [n, D], position after position, under the answer's name."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [one.hidden for one in answer.positions if one.hidden is not None]
    hidden = torch.cat(rows) if rows else torch.zeros(0, 0)
    save_file({"hidden": hidden.contiguous()}, folder / f"{answer.name}.safetensors")


def _same(known: TraceHeader, wanted: TraceHeader, path: Path) -> TraceHeader:
    """The file's header, if only costs, circumstances and the model's name differ."""
    there, here = (replace(header, model="", costs=None, about={}).as_dict() for header in (known, wanted))
    differing = [name for name, value in there.items() if value != here[name]]
    if differing:
        raise ValueError(f"{path} holds a trace that differs in {', '.join(differing)}; write to another file")
    return known
