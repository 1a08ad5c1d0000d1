"""The states of a frozen model on disk, so that each text goes through the model once, however often it is trained on.

They are read from the target's sequence while it answers (or reads) a text: the recorder is a drafter that never drafts.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from ...core.drafter import Drafter
from ...core.values import Context, Step
from ...drafters.base import DrafterFactory
from ...engine.engine import Engine
from ...engine.request import RequestOptions
from ...jsonl import Lines, read_lines
from ...models.packed.sequence import Sequence as Text

Sink = Callable[[tuple[int, ...], Mapping[int, Tensor]], None]
BYTES = 2
INDEX = "index.jsonl"


def name_of(ids: Sequence[int]) -> str:
    """16 hex digits of a token sequence."""
    return hashlib.sha256(np.array(ids, dtype="<i8").tobytes()).hexdigest()[:16]


@final
class Recorder(Drafter):
    """Hands over the committed tokens and their states when its request ends: all tokens but the last."""

    def __init__(self, target: Text, layers: frozenset[int], sink: Sink) -> None:
        self.taps = layers
        self._target = target
        self._sink = sink

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        return
        yield

    def close(self) -> None:
        if self._target.ids:
            self._sink(tuple(self._target.ids), {layer: self._target.states(layer) for layer in self.taps})


def holds_texts(directory: Path) -> bool:
    """Whether there is a store with the states of at least one text."""
    file = directory / INDEX
    return file.exists() and file.read_bytes().count(b"\n") > 1  # the first line is the store's head


def recorder(layers: Sequence[int], sink: Sink) -> DrafterFactory:
    return lambda target: Recorder(target, frozenset(layers), sink)


@final
class StateStore:
    """A directory: index.jsonl, and a file of bfloat16 rows [any, width] for each layer.

    Rows are written before the line that names them, and what no line names is cut off on opening: a kill loses one text.
    model says whose states these are; ValueError where the directory holds another one's, or other layers.
    """

    def __init__(self, directory: Path, layers: Sequence[int], width: int, model: str) -> None:
        self.layers = tuple(sorted(set(layers)))
        self.width = width
        directory.mkdir(parents=True, exist_ok=True)
        self._lines = Lines(directory / INDEX)
        head = {"layers": list(self.layers), "width": width, "model": model}
        self._files = {layer: (directory / f"layer-{layer}.bf16") for layer in self.layers}
        try:
            self._open(directory, head)
        except BaseException:
            self.close()
            raise

    def _open(self, directory: Path, head: dict[str, Any]) -> None:
        known = self._lines.known
        if known and known[0] != head:
            raise ValueError(f"{directory} holds states of {known[0]}, and {head} is asked for; name another directory")
        if not known:
            self._lines.write(head)
        self._places = {str(one["name"]): (int(one["first"]), int(one["rows"])) for one in known[1:]}
        self._rows = max((first + rows for first, rows in self._places.values()), default=0)
        for file in self._files.values():
            with file.open("ab") as opened:
                if opened.tell() < self._rows * self.width * BYTES:
                    raise ValueError(f"{file} is shorter than its index says; delete {directory} and make it again")
                opened.truncate(self._rows * self.width * BYTES)

    @classmethod
    def opened(cls, directory: Path, layers: Sequence[int], width: int, model: str) -> StateStore:
        """A store that holds at least these layers; a new one of just these where there is none."""
        file = directory / INDEX
        first = next(read_lines(file), None) if file.exists() else None
        held = layers if first is None else first[1].get("layers", layers)
        if lacking := sorted(set(layers) - set(held)):
            raise ValueError(f"{directory} holds states of the layers {held}, and {lacking} are needed; name another")
        return cls(directory, held, width, model)

    def __contains__(self, ids: Sequence[int]) -> bool:
        return name_of(ids) in self._places

    @property
    def rows(self) -> int:
        return self._rows

    def add(self, ids: tuple[int, ...], states: Mapping[int, Tensor]) -> None:
        """Keep the states [len(ids), width] of a text; a known text is left as it is. Raises ValueError on a full disk."""
        if ids in self:
            return
        for layer, file in self._files.items():
            data = states[layer].to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
            try:
                with file.open("ab") as opened:
                    opened.truncate(self._rows * self.width * BYTES)
                    opened.write(data)
            except OSError as error:
                raise ValueError(f"can't write to {file}: {error}; what was written before is whole") from error
        name = name_of(ids)
        self._lines.write({"name": name, "first": self._rows, "rows": len(ids)})
        self._places[name] = self._rows, len(ids)
        self._rows += len(ids)

    def read(self, ids: Sequence[int], layer: int) -> Tensor:
        """bfloat16 [len(ids), width]. KeyError on a text that isn't held."""
        first, rows = self._places[name_of(ids)]
        values = np.fromfile(self._files[layer], np.int16, rows * self.width, offset=first * self.width * BYTES)
        return torch.from_numpy(values).view(torch.bfloat16).view(rows, self.width)

    def close(self) -> None:
        self._lines.close()


def record_missing(
    engine: Engine, store: StateStore, texts: Sequence[Sequence[int]], tick: Callable[[], None], max_batch: int = 8
) -> None:
    """Let the model read the texts whose states the store lacks."""
    reading = engine.using(recorder(store.layers, store.add))
    missing = sorted((list(text) for text in texts if text not in store), key=len)
    # what is written is thrown away, so the checkpoint needn't have its say
    options: RequestOptions = {"max_new_tokens": 1, "generation_config": False}
    for _ in reading.each(((text, options) for text in missing), max_batch=max_batch):
        tick()
