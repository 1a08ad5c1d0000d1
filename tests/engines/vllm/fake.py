"""vLLM as a proposer sees it: a batch whose rows move, prompts read in parts, drafts verified, requests that come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch

EOS = 2
Target = Callable[[Sequence[int]], int]


class Proposes(Protocol):
    def propose(self, sampled: Any, lengths: Any, texts: Any, slot_mappings: Any = None) -> list[list[int]]: ...


def config(
    longest: int = 8, max_length: int = 512, requests: int = 16, forerun: Any = None, path: str = "", **model: Any
) -> Any:
    described = SimpleNamespace(eos_token_id=EOS, **model)
    described.get_text_config = lambda: described
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=longest),
        model_config=SimpleNamespace(hf_config=described, max_model_len=max_length, model=path, dtype=torch.float32),
        device_config=SimpleNamespace(device_type="cpu"),
        scheduler_config=SimpleNamespace(max_num_seqs=requests),
        additional_config={} if forerun is None else {"forerun": forerun},
    )


@dataclass(eq=False)
class Asked:
    """A request. read: how many of its tokens were computed."""

    ids: list[int]
    new: int
    prompt: int = field(init=False)
    read: int = 0
    draft: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prompt = len(self.ids)

    @property
    def answer(self) -> list[int]:
        return self.ids[self.prompt :]

    @property
    def finished(self) -> bool:
        return len(self.answer) >= self.new or EOS in self.answer


@dataclass(eq=False)
class FakeVllm:
    """target gives the token after a text. chunk: tokens of a prompt read in a step. forward is told of its rows."""

    proposer: Proposes
    target: Target
    rows: int = 16
    max_length: int = 512
    chunk: int = 64
    longest: int = 8
    waiting: list[Asked] = field(default_factory=list)
    batch: list[Asked] = field(default_factory=list)
    finished: list[Asked] = field(default_factory=list)
    took: list[tuple[int, int]] = field(default_factory=list)  # requests, drafted tokens
    forward: Callable[[int], object] = lambda rows: None

    def ask(self, ids: Sequence[int], new: int) -> Asked:
        self.waiting.append(Asked([*ids], new))
        return self.waiting[-1]

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.batch)

    def remove(self, one: Asked) -> None:
        """The last row moves into the hole, as in vLLM's batch."""
        row = self.batch.index(one)
        last = self.batch.pop()
        if last is not one:
            self.batch[row] = last

    def preempt(self, one: Asked) -> None:
        self.remove(one)
        one.read, one.draft = 0, []
        self.waiting.insert(0, one)

    def abort(self, one: Asked) -> None:
        self.remove(one)

    def step(self, asks: bool = True, cut: int | None = None) -> None:
        """One forward of all rows. asks: whether vLLM calls the proposer. cut: the most drafted tokens that it verifies."""
        while self.waiting and len(self.batch) < self.rows:
            self.batch.append(self.waiting.pop(0))
        self.took.append((len(self.batch), sum(len(one.draft[:cut]) for one in self.batch)))
        self.forward(sum(self.took[-1]))
        sampled = [self._run(one, cut) for one in self.batch]
        self._propose(sampled, asks)
        for one in [one for one in self.batch if one.finished]:
            end = one.answer.index(EOS) + 1 if EOS in one.answer else one.new
            del one.ids[one.prompt + min(end, one.new) :]
            self.remove(one)
            self.finished.append(one)

    def _run(self, one: Asked, cut: int | None) -> list[int]:
        if len(one.ids) - one.read > self.chunk:
            one.read += self.chunk
            return []
        new: list[int] = []
        for drafted in [*one.draft[:cut], None]:
            new.append(self.target([*one.ids, *new]))
            if drafted != new[-1]:
                break
        one.ids += new
        one.read = len(one.ids) - 1
        return new

    def _propose(self, sampled: list[list[int]], asks: bool) -> None:
        if not asks:  # what vLLM does near the end of its context
            for one in (one for one in self.batch if len(one.ids) > one.prompt):
                one.draft = [0] * self.longest
            return
        texts = np.zeros((self.rows, self.max_length), dtype=np.int32)
        lengths = np.zeros(self.rows, dtype=np.int32)
        for row, one in enumerate(self.batch):
            texts[row, : len(one.ids)] = one.ids
            lengths[row] = len(one.ids)
        drafts = self.proposer.propose(sampled, lengths, texts, slot_mappings=None)
        assert len(drafts) == len(self.batch)
        for one, draft, new in zip(self.batch, drafts, sampled, strict=True):
            assert len(draft) <= min(self.longest, self.max_length - len(one.ids) - 1)
            assert new or not draft
            one.draft = draft


def repeating(ids: Sequence[int]) -> int:
    """A text with habits: what follows two tokens is nearly always the same."""
    mixed = (ids[-1] * 31 + ids[-2] * 17 + (len(ids) // 23) % 3) % 29
    return EOS if mixed == 7 and len(ids) % 5 == 0 else 3 + mixed


def unforeseeable(ids: Sequence[int]) -> int:
    """No token follows from what was there before."""
    return 3 + hash((len(ids), ids[0], ids[-1])) % 997


def alone(target: Target, ids: Sequence[int], new: int) -> list[int]:
    """The answer of plain decoding."""
    text = [*ids]
    while len(text) < len(ids) + new and EOS not in text[len(ids) :]:
        text.append(target(text))
    return text[len(ids) :]
