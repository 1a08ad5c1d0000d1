"""The texts of a generate call, which grow each at its own pace, in the step with each other that transformers shows.

A text takes the tokens of its rounds one by one: the stopping criteria see its ids up to each token, as if no more had been
accepted, and nothing behind a stop is kept. A step of the batch is put to the streamer once every text has reached it.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from .core import Round
from .hf_call import Call


@final
class Text:
    """One row of the batch. stop is its number of tokens when a criterion first held, None while it runs."""

    def __init__(self, call: Call, number: int) -> None:
        self.tokens: list[int] = []
        self.scores: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.stop: int | None = None
        self._call = call
        self._number = number
        width = call.padded.shape[1]
        self._ids = call.padded.new_empty(1, width + call.max_new_tokens)
        self._ids[:, :width] = call.padded[number]

    @property
    def pads(self) -> bool:
        """Whether padding follows the end; without an end of sequence transformers writes on until the batch is done."""
        return bool(self._call.eos)

    def take(self, round: Round) -> None:
        for i, token in enumerate(round.tokens):
            if self.stop is not None and self.pads:
                return
            self._note(None if round.logits is None else round.logits[i])
            self.tokens.append(token)
            ids = self._ids[:, : self._call.padded.shape[1] + len(self.tokens)]
            ids[0, -1] = token
            if self.stop is None and bool(
                self._call.criteria(ids, tuple(self.scores) if self._call.keeps_scores else None)
            ):
                self.stop = len(self.tokens)

    def _note(self, logits: Tensor | None) -> None:
        if logits is None:
            return
        raw = logits.to(self._ids.device, torch.float32, copy=True)[None]
        if self._call.keeps_logits:
            self.logits.append(raw)
        if self._call.keeps_scores:
            padding = self._call.padded.shape[1] - self._call.lengths[self._number]
            ids = self._ids[:, padding : self._call.padded.shape[1] + len(self.tokens)]
            processor = self._call.processors[self._number]
            self.scores.append(raw if processor is None else processor(ids, raw.clone()))

    def token(self, step: int) -> int | None:
        """What the batch shows of this text at a step, None if that isn't known yet."""
        if self.stop is not None and step >= self.stop and self.pads:
            return self._call.pad
        return self.tokens[step] if step < len(self.tokens) else None


@final
class Texts:
    """All rows of the batch, in step."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._texts = [Text(call, number) for number in range(len(call.lengths))]
        self._steps: list[Tensor] = []

    def take(self, number: int, round: Round) -> None:
        """Add a round's tokens to a text, and give the streamer the steps that every text has now reached."""
        self._texts[number].take(round)
        while (step := self._next()) is not None:
            self._steps.append(step)
            if self._call.streamer is not None:
                self._call.streamer.put(step.cpu())

    def _next(self) -> Tensor | None:
        number = len(self._steps)
        if self._length is not None and number >= self._length:
            return None
        tokens = [text.token(number) for text in self._texts]
        if any(token is None for token in tokens):
            return None
        return torch.tensor(tokens, dtype=torch.long, device=self._call.padded.device)

    @property
    def _length(self) -> int | None:
        """How many steps the batch has, known when every text has stopped."""
        stops = [text.stop for text in self._texts]
        return None if None in stops else max(stop for stop in stops if stop is not None)

    def done(self) -> list[int]:
        """The numbers of the texts that need no more rounds."""
        length = self._length
        return [
            number
            for number, text in enumerate(self._texts)
            if text.stop is not None and (text.pads or (length is not None and len(text.tokens) >= length))
        ]

    def sequences(self) -> Tensor:
        """Prompts and steps [B, n + steps]."""
        return torch.cat([self._call.padded, *[step[:, None] for step in self._steps]], 1)

    def scores(self) -> tuple[Tensor, ...]:
        """A step's processed scores [B, V]. Behind a text's end they say padding, for no forward ran there."""
        return self._stacked([text.scores for text in self._texts])

    def logits(self) -> tuple[Tensor, ...]:
        """A step's raw logits [B, V], likewise."""
        return self._stacked([text.logits for text in self._texts])

    def _stacked(self, kept: list[list[Tensor]]) -> tuple[Tensor, ...]:
        end = torch.full_like(kept[0][0], -torch.inf)
        if self._call.pad is not None and self._call.pad < end.shape[1]:
            end[0, self._call.pad] = 0
        return tuple(
            torch.cat([values[step] if step < len(values) else end for values in kept])
            for step in range(len(self._steps))
        )
