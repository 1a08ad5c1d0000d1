"""The options of one request, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedOption
from .generation_config.defaults import LENGTH, OPTIONS, OPTIONS_IF_DRAWN, CheckpointDefaults
from .grammar.source import KINDS, GrammarSource, source_of
from .option_values import value_of

if TYPE_CHECKING:
    from torch import Tensor

    from ..core.processors import ClassifiedProcessors
    from ..core.values import Sampling
    from .answer import LogprobOptions

NOTHING: Mapping[str, Any] = MappingProxyType({})
# what Result.applied tells of
APPLIED = (
    *("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "stop"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty", "no_repeat_ngram"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a request in one type each; request.RequestOptions says what they do.

    The defaults are greedy decoding of up to 128 tokens. processors.row_wise promises that a processor keeps no state.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    do_sample: bool = False
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
    prediction: str | Sequence[int] | None = None
    json_schema: str | None = None
    json_object: bool = False
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    remember: bool = True
    generation_config: bool = True

    def classified(self) -> ClassifiedProcessors:
        """Its own processors. Raises UnsupportedOption on one that can't act here."""
        from ..core.processors import classify

        return classify(self.processors)

    def sampling(self, own: ClassifiedProcessors) -> Sampling:
        """How rows become laws. own: its processors, classified. Raises ValueError out of range."""
        from ..core.values import Sampling

        shared = {field.name: getattr(self, field.name) for field in fields(Sampling) if field.name in self.__slots__}
        return Sampling(**{**shared, "processors": own.processors})

    def doubt(self, own: ClassifiedProcessors) -> str | None:
        """Why each row must be processed once and in order, None if there is no need. own: its processors, classified.

        Raises UnsupportedOption where rows would be processed again.
        """
        doubt = own.doubt
        if doubt is not None and self.processed_logprobs:
            raise UnsupportedOption(f"processed_logprobs processes each row twice, and {doubt}")
        return doubt

    def logprob_options(self) -> LogprobOptions | None:
        from .answer import LogprobOptions

        if self.logprobs is None:
            if self.processed_logprobs:
                raise UnsupportedOption("processed_logprobs needs logprobs, the number of alternatives (0 for none)")
            return None
        if self.logprobs < 0:
            raise ValueError(f"logprobs must be at least 0, got {self.logprobs}")
        return LogprobOptions(self.logprobs, self.processed_logprobs)

    def grammar_source(self) -> GrammarSource | None:
        """What the answer has to be. Raises UnsupportedOption on two of such options."""
        return source_of({kind: getattr(self, kind) for kind in KINDS})

    def stop_tokens(self, vocab_size: int) -> frozenset[int]:
        """Raises ValueError on a token that the model doesn't have."""
        for token in self.stop_token_ids:
            if not 0 <= token < vocab_size:
                raise ValueError(f"stop_token_ids must be in 0..{vocab_size - 1}, got {token}")
        return frozenset(self.stop_token_ids)

    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


def given_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a request gives, checked and in the types of Options; None stands for an option that isn't given.

    Raises UnsupportedOption on an unknown option, and lists those there are, ValueError on a value of another type.
    """
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            raise UnsupportedOption(f"unknown option {name!r}; known: {', '.join(known)}")
    checked = {name: value_of(name, value) for name, value in given.items() if value is not None}
    return {name: value for name, value in checked.items() if value is not None}


def options_from(
    given: Mapping[str, Any], default: Mapping[str, Any] = NOTHING, default_if_drawn: Mapping[str, Any] = NOTHING
) -> Options:
    """Options from keyword arguments; default stands in for what isn't given, default_if_drawn where tokens are drawn, too.

    They are drawn with do_sample or a temperature above 0. Raises what given_options raises, and UnsupportedOption where
    the two disagree.
    """
    asked = given_options(given)
    temperature, sample = asked.get("temperature"), asked.get("do_sample")
    if sample is not None and temperature is not None and sample != (temperature != 0):
        raise UnsupportedOption(
            f"do_sample={sample} and temperature={temperature} disagree: 0 takes the best token, anything above draws; "
            "leave one of them out"
        )
    if not (sample or temperature):
        return Options(**{**default, **asked, "do_sample": False})
    drawn = {"temperature": 1.0, **default, **default_if_drawn, **asked, "do_sample": True}
    if not drawn["temperature"]:
        raise ValueError("the checkpoint's temperature is 0, which draws nothing; give a temperature above 0")
    return Options(**drawn)


def applied_options(
    options: Options, defaults: CheckpointDefaults, given: Mapping[str, Any], processors: Sequence[str]
) -> dict[str, Any]:
    """The options in force, and under "checkpoint" the fields of its generation config that made them so.

    processors: those that act otherwise.
    """
    told = {name: getattr(options, name) for name in APPLIED}
    theirs = {**OPTIONS, **({name: name for name in OPTIONS_IF_DRAWN} if options.do_sample else {})}
    known = {**defaults.options, **defaults.options_if_drawn}
    fields = [name for name, option in theirs.items() if option in known and option not in given]
    if defaults.max_length is not None and not {"max_new_tokens"} & {*given, *defaults.options}:
        fields.append(LENGTH)
    return {**told, "checkpoint": [*fields, *processors]}
