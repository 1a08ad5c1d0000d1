"""Reads traces: what a drafter would have drafted after every token of the target's own greedy answers.

A policy changes where rounds begin, so a draft at every position is needed to replay or train any rule without a model
(tune.replay.simulate). The file is JSON lines, a header and then one answer per line; `forerun trace` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from ..core.cost import Costs
from ..core.identity import Pair
from ..core.values import Signals
from ..jsonl import Line, lines
from .branches import Branches, as_dict, from_dict
from .signals import numbers_of, signals_from

FORMAT = 1
MARK = "forerun_trace"


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """The draft after one known token. agreed: how many of its leading tokens agree with the answer.

    signals[i] are of drafted[i], None where the drafter computed no law (lookup). hidden [n, D], where it was kept, are the
    rows that produced the tokens. A draft that is shorter than the trace's depth ended by itself or by the answer's room.
    branches: the draft of a drafter that branches another one; `drafted` is then the other one's chain.
    """

    drafted: tuple[int, ...]
    signals: tuple[Signals | None, ...]
    agreed: int
    hidden: Tensor | None = None
    branches: Branches | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TracedAnswer:
    """A prompt, the target's answer, and positions[i] after its token i, for all tokens but the last.

    room: the most tokens that the answer could have had.
    """

    name: str
    category: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    room: int
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """How a trace was made: the model, the drafter, their identities, and the depth of drafts.

    top: how many of the largest probabilities the signals hold. asked: how many answers were asked for. costs, if they
    were measured: of verifying by rows, of drafting by steps, of a drafter's first reading of a prompt by its tokens
    (tune.replay.round_costs). about: machine, versions, prompts.
    """

    model: str
    pair: Pair
    drafter: str
    drafter_options: Mapping[str, Any]
    depth: int
    top: int
    max_new_tokens: int
    hidden: bool
    asked: int
    costs: Costs | None
    about: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {MARK: FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TraceHeader:
        """Raises ValueError on what is no header, or one of another format."""
        if MARK not in data:
            raise ValueError("this is no trace: a header is missing; make a trace with forerun trace")
        if data[MARK] != FORMAT:
            raise ValueError(f"this is a trace of format {data[MARK]}, and this forerun reads {FORMAT}; trace again")
        try:
            values = {name: data[name] for name in cls.__dataclass_fields__}
            costs = None if values["costs"] is None else Costs.from_dict(values["costs"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"the trace's header is broken ({error}); trace again") from error
        return cls(**{**values, "pair": Pair.from_dict(values["pair"]), "costs": costs})


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A header and the answers so far."""

    path: Path
    header: TraceHeader
    answers: tuple[TracedAnswer, ...]

    @property
    def branched(self) -> bool:
        """Whether it holds trees besides chains."""
        return any(one.branches is not None for answer in self.answers for one in answer.positions)

    def check(self, pair: Pair) -> None:
        """Raise ValueError unless the trace was made with this model, tokenizer and drafter."""
        difference = self.header.pair.target.difference(pair.target)
        if difference is None and self.header.pair.drafter != pair.drafter:
            difference = f"drafter is {self.header.pair.drafter} here and {pair.drafter} there"
        if difference is not None:
            raise ValueError(
                f"{self.path} was traced with another model, tokenizer or drafter ({difference}); trace this one"
            )


def read_trace(path: Path) -> Trace:
    """Raises ValueError that says what is wrong with the file: missing, empty, cut in the middle, no trace at all."""
    values = _values(path)
    first = next(values, None)
    if first is None:
        raise ValueError(f"{path} is an empty trace; make one with forerun trace")
    try:
        header = TraceHeader.from_dict(first[1])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    answers: list[TracedAnswer] = []
    for line, value in values:
        try:
            answers.append(answer_of(value, hidden_folder(path) if header.hidden else None))
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ValueError(f"{line.place} is no answer of a trace ({error!r}); trace again") from error
    if not answers:
        raise ValueError(f"{path} is an empty trace: it holds no answer; run forerun trace again")
    return Trace(path, header, tuple(answers))


def _values(path: Path) -> Iterator[tuple[Line, dict[str, Any]]]:
    for line in lines(path, "the trace"):
        try:
            value = line.value()
        except ValueError as error:
            if line.ended:
                raise
            raise ValueError(
                f"{path} is cut off in the middle of line {line.number}; run the same forerun trace command again, it goes "
                "on after the last whole line"
            ) from error
        yield line, value


def hidden_folder(path: Path) -> Path:
    """The folder of the hidden states, one safetensors file per answer."""
    return path.with_name(f"{path.name}.hidden")


def answer_as_dict(answer: TracedAnswer) -> dict[str, Any]:
    """An answer as in the file."""
    return {
        "name": answer.name,
        "category": answer.category,
        "prompt": list(answer.prompt),
        "tokens": list(answer.tokens),
        "room": answer.room,
        "positions": [
            {
                "drafted": list(one.drafted),
                "signals": [numbers_of(signals) for signals in one.signals],
                **({} if one.branches is None else {"branches": as_dict(one.branches)}),
            }
            for one in answer.positions
        ],
    }


def answer_of(data: Mapping[str, Any], hidden: Path | None) -> TracedAnswer:
    """The inverse of answer_as_dict; hidden: the folder of its hidden states."""
    tokens = tuple(data["tokens"])
    rows = [None] * len(tokens) if hidden is None else _hidden_rows(hidden / f"{data['name']}.safetensors", data)
    positions = tuple(
        position_of(
            tuple(one["drafted"]),
            tuple(map(signals_from, one["signals"])),
            tokens[index + 1 :],
            rows[index],
            from_dict(one["branches"], tokens[index + 1 :]) if "branches" in one else None,
        )
        for index, one in enumerate(data["positions"])
    )
    if len(positions) != len(tokens) - 1:
        raise ValueError(f"an answer of {len(tokens)} tokens needs {len(tokens) - 1} positions, got {len(positions)}")
    return TracedAnswer(data["name"], data["category"], tuple(data["prompt"]), tokens, int(data["room"]), positions)


def position_of(
    drafted: tuple[int, ...],
    signals: tuple[Signals | None, ...],
    follow: Sequence[int],
    hidden: Tensor | None = None,
    branches: Branches | None = None,
) -> Position:
    """A position whose answer continues with `follow`."""
    if len(signals) != len(drafted):
        raise ValueError(f"each drafted token needs its signals, got {len(drafted)} tokens and {len(signals)} signals")
    agreed = 0
    while agreed < min(len(drafted), len(follow)) and drafted[agreed] == follow[agreed]:
        agreed += 1
    return Position(drafted, signals, agreed, hidden, branches)


def _hidden_rows(file: Path, data: Mapping[str, Any]) -> list[Tensor | None]:
    counts = [len(one["drafted"]) for one in data["positions"]]
    return list(load_file(file)["hidden"].split(counts))
