"""The options of one request, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from .answer import LogprobOptions
from .core import Sampling
from .errors import UnsupportedOption
from .processors import judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one prompt is to be answered. The defaults are greedy decoding of up to 128 tokens.

    stop: strings that end the text and are left out of it; stop_token_ids end it as an end of sequence does. logprobs:
    None, or how many alternatives to report beside each token. speculate=False decodes plainly. seed None draws one from
    torch's global generator. Nothing is drafted with processors that may keep state (processors.row_wise promises that
    they don't).
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    no_repeat_ngram: int = 0
    processors: Sequence[Callable[[Tensor, Tensor], Tensor]] = ()
    seed: int | None = None
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    processed_logprobs: bool = False
    speculate: bool = True

    def sampling(self) -> Sampling:
        """How rows become laws. Raises UnsupportedOption on a processor that can't act here, ValueError out of range."""
        shared = {field.name: getattr(self, field.name) for field in fields(Sampling)}
        return Sampling(**{**shared, "processors": judge(self.processors).processors})

    def doubt(self) -> str | None:
        """Why each row must be processed once and in order, None if there is no need.

        Raises UnsupportedOption where rows would be processed again.
        """
        doubt = judge(self.processors).doubt
        if doubt is not None and self.processed_logprobs:
            raise UnsupportedOption(f"processed_logprobs processes each row twice, and {doubt}")
        return doubt

    def logprob_options(self) -> LogprobOptions | None:
        if self.logprobs is None:
            if self.processed_logprobs:
                raise UnsupportedOption("processed_logprobs needs logprobs, the number of alternatives (0 for none)")
            return None
        if self.logprobs < 0:
            raise ValueError(f"logprobs must be at least 0, got {self.logprobs}")
        return LogprobOptions(self.logprobs, self.processed_logprobs)

    def stop_tokens(self, vocab_size: int) -> frozenset[int]:
        """Raises ValueError on a token that the model doesn't have."""
        for token in self.stop_token_ids:
            if not 0 <= token < vocab_size:
                raise ValueError(f"stop_token_ids must be in 0..{vocab_size - 1}, got {token}")
        return frozenset(self.stop_token_ids)

    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


def options_from(given: Mapping[str, Any]) -> Options:
    """Options from keyword arguments. Raises UnsupportedOption on an unknown one, and lists those there are."""
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            raise UnsupportedOption(f"unknown option {name!r}; known: {', '.join(known)}")
    return Options(**given)
