"""The texts of a generate call, which grow each at its own pace, in the step with each other that transformers shows.

A step of the batch is made once every text has reached it: the stopping criteria see all of its rows, as if no more had
been accepted, nothing after a stop is kept, and the streamer gets it.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor
from transformers import StopStringCriteria

from ..core.values import Round
from ..errors import UnsupportedOption
from .call import Call


@final
class Text:
    """One row of the batch. stop is its number of tokens when a criterion first held, None while it runs.

    enough: it holds its stop already, though the batch hasn't come so far.
    """

    def __init__(self, call: Call, number: int) -> None:
        self.tokens: list[int] = []
        self.scores: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.stop: int | None = None
        self.enough = False
        self._call = call
        self._number = number

    @property
    def ended(self) -> bool:
        """Whether padding follows; without an end of sequence transformers writes on until the batch is done."""
        return self.stop is not None and self._call.pads

    def take(self, round: Round) -> None:
        for i, token in enumerate(round.tokens):
            if round.logits is not None:
                self._note(round.logits[i])
            self.tokens.append(token)
            if self._call.pads and len(self._call.lengths) > 1 and not self.enough:
                self.enough = self._holds_stop_string()

    def _holds_stop_string(self) -> bool:
        criteria = [criterion for criterion in self._call.criteria if type(criterion) is StopStringCriteria]
        if not criteria:
            return False
        padded = self._call.padded[self._number]
        ids = torch.cat([padded, padded.new_tensor(self.tokens)])[None]
        return any(bool(criterion(ids, None)) for criterion in criteria)

    def _note(self, logits: Tensor) -> None:
        raw = logits.to(self._call.padded.device, torch.float32, copy=True)[None]
        if self._call.keeps_logits:
            self.logits.append(raw)
        if self._call.keeps_scores:
            ids = self._call.padded.new_tensor([[*self._call.prompt(self._number), *self.tokens]])
            processor = self._call.processors[self._number]
            self.scores.append(raw if processor is None else processor(ids, raw.clone()))

    def token(self, step: int) -> int | None:
        """What the batch shows of this text at a step, None if that isn't known yet."""
        if self.ended:
            return self._call.pad
        return self.tokens[step] if step < len(self.tokens) else None


@final
class Texts:
    """All rows of the batch, in step."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._texts = [Text(call, number) for number in range(len(call.lengths))]
        self._ids = call.padded
        self._scores: tuple[Tensor, ...] = ()
        self._logits: tuple[Tensor, ...] = ()

    def take(self, number: int, round: Round) -> None:
        """Add a round's tokens to a text, and make the steps that every text has now reached."""
        self._texts[number].take(round)
        while not self._done and (tokens := self._next()) is not None:
            self._make(tokens)

    @property
    def _done(self) -> bool:
        return all(text.stop is not None for text in self._texts)

    @property
    def _step(self) -> int:
        return self._ids.shape[1] - self._call.padded.shape[1]

    def _next(self) -> Tensor | None:
        tokens = [text.token(self._step) for text in self._texts]
        if any(token is None for token in tokens):
            return None
        return torch.tensor(tokens, dtype=torch.long, device=self._ids.device)

    def _make(self, tokens: Tensor) -> None:
        if self._call.keeps_scores:
            self._scores += (self._row_of_each([text.scores for text in self._texts]),)
        if self._call.keeps_logits:
            self._logits += (self._row_of_each([text.logits for text in self._texts]),)
        self._ids = torch.cat([self._ids, tokens[:, None].to(self._ids)], 1)
        for text, stops in zip(self._texts, self._stops(), strict=True):
            if stops and text.stop is None:
                text.stop = self._step
        if self._call.streamer is not None:
            self._call.streamer.put(tokens.cpu())

    def _stops(self) -> list[bool]:
        """What the criteria say of each text."""
        shown = self._ids.clone()
        flags = self._call.criteria(shown, self._scores if self._call.keeps_scores else None)
        if not torch.equal(shown, self._ids):
            raise UnsupportedOption("custom_generate: a stopping criterion wrote into the ids; let it work on a copy")
        if flags.numel() != len(self._texts):
            raise UnsupportedOption(
                f"custom_generate: stopping criteria gave flags of {list(flags.shape)} for {len(self._texts)} texts; a "
                "criterion returns one flag, or one for each text"
            )
        return [bool(flag) for flag in flags.flatten().tolist()]

    def done(self) -> list[int]:
        """The numbers of the texts that need no more rounds."""
        return [number for number, text in enumerate(self._texts) if text.ended or text.enough or self._done]

    def sequences(self) -> Tensor:
        """Prompts and steps [B, n + steps]."""
        return self._ids

    def scores(self) -> tuple[Tensor, ...]:
        """A step's processed scores [B, V]. After a text's end they say padding, for no forward ran there."""
        return self._scores

    def logits(self) -> tuple[Tensor, ...]:
        """A step's raw logits [B, V], likewise."""
        return self._logits

    def _row_of_each(self, kept: list[list[Tensor]]) -> Tensor:
        step = self._step
        end = torch.full_like(kept[0][0], -torch.inf)
        if self._call.pad is not None and self._call.pad < end.shape[1]:
            end[0, self._call.pad] = 0
        return torch.cat([end if text.ended else values[step] for text, values in zip(self._texts, kept, strict=True)])
