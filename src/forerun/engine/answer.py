"""One request's answer, built from its rounds: text, ids, log-probabilities, statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from torch import Tensor

from ..core.sampling import processed, warped
from ..core.values import Context, FinishReason, Round
from .explanation import Explained
from .stats import Stats
from .text import TextStream


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """An emitted token's log-probability under the target, and the most probable possible tokens there, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """ids are the new tokens, with the end of sequence where there is one; text leaves out it and any stop string.

    ids and logprobs (None unless asked for) end with the token that completes a stop string. finish_reason is
    "stop" or "length". text is None without a tokenizer. applied: the options that took effect, the checkpoint's and
    the request's; "checkpoint" lists the fields of the checkpoint's generation config among them. choice: what the drafter
    auto chose and why, "" for others. explained: the rounds after the first token, where that was asked for.
    """

    text: str | None
    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None
    stats: Stats
    finish_reason: FinishReason
    prompt_tokens: int
    applied: Mapping[str, Any] = field(default_factory=dict)
    choice: str = ""
    explained: tuple[Explained, ...] | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a stream: text that became certain with ids. drafted: they were accepted from a draft.

    The pieces' texts join to the result's text; the last piece carries the result.
    """

    text: str
    ids: tuple[int, ...]
    drafted: bool = False
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """top: how many alternatives besides the token. processed: after penalties and filters, else the raw log-softmax."""

    top: int = 0
    processed: bool = False


@final
class Answer:
    """Turns rounds into pieces. shown: special tokens that the text is to hold, all the same."""

    def __init__(
        self,
        context: Context,
        tokenizer: Any | None,
        stop: Sequence[str] = (),
        logprobs: LogprobOptions | None = None,
        applied: Mapping[str, Any] | None = None,
        choice: str = "",
        explained: list[Explained] | None = None,
        shown: Sequence[str] = (),
    ) -> None:
        self._context = context
        self._applied = {} if applied is None else applied
        self._choice = choice
        self._explained = explained
        self._text = None if tokenizer is None else TextStream(tokenizer, stop, shown)
        self._may_stop = bool(stop)
        self._logprob_options = logprobs
        self._logprobs: list[TokenLogprob] = []
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._stats = Stats()

    def stopped(self) -> bool:
        """Whether a stop string was completed, so that no more rounds are needed."""
        return self._may_stop and self._text is not None and self._text.found is not None

    @property
    def logprobs(self) -> Sequence[TokenLogprob]:
        """Of the tokens so far, where they were asked for."""
        return self._logprobs

    def take(self, round: Round, native: float = 0.0) -> list[Piece]:
        """The round's tokens one at a time, up to the end of the answer. native: its seconds inside native code."""
        pieces: list[Piece] = []
        drafted = len(round.verdict.path)
        for i, token in enumerate(round.tokens):
            if self._logprob_options is not None and round.logits is not None:
                self._logprobs.append(self._logprob(round.logits[i], token, self._logprob_options))
            self._ids.append(token)
            text = "" if self._text is None else self._text.push(token)
            self._texts.append(text)
            pieces.append(Piece(text, (token,), i < drafted))
            if self._may_stop and self.stopped():
                break
        used = len(pieces)
        self._stats.add(round if used == len(round.tokens) else replace(round, tokens=round.tokens[:used]), native)
        return pieces

    def end(self) -> Piece:
        """The rest of the text and the result."""
        rest = "" if self._text is None else self._text.flush()
        self._texts.append(rest)
        result = Result(
            text=None if self._text is None else "".join(self._texts),
            ids=tuple(self._ids),
            logprobs=None if self._logprob_options is None else tuple(self._logprobs),
            stats=self._stats,
            finish_reason="stop" if self.stopped() else self._context.finish_reason or "length",
            prompt_tokens=self._context.prompt_length,
            applied=self._applied,
            choice=self._choice,
            explained=None if self._explained is None else tuple(self._explained),
        )
        return Piece(rest, (), result=result)

    def _logprob(self, logits: Tensor, token: int, options: LogprobOptions) -> TokenLogprob:
        scores = logits.float()
        if options.processed:
            sampling, prompt_length = self._context.sampling, self._context.prompt_length
            prefix = [*self._context.ids[:prompt_length], *self._ids]
            scores = processed(logits, sampling, prefix, prompt_length).float()
            scores = warped(scores, sampling) if sampling.temperature else scores
        values = scores.log_softmax(-1)
        best = values.topk(min(options.top, values.shape[-1]))
        alternatives = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        top = tuple((other, value) for other, value in alternatives if value > -math.inf)
        return TokenLogprob(token, float(values[token]), top)
