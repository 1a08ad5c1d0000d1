"""Which logits processors may act on drafted tokens: those that are functions of the ids and scores they are given.

Verification needs the laws of drafted tokens that may be rejected, and computes a row once, twice or never. A processor that
keeps state between calls would see a text other than the output, so nothing is drafted with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any, final

import torch
from torch import Tensor
from transformers import PrefixConstrainedLogitsProcessor

from ..errors import UnsupportedOption
from .processor_state import ReachableState, StateWatch, doubts

# transformers' own that are functions of ids and scores, whatever they may cache on the way
STATELESS = frozenset(
    {
        "BarkEosPrioritizerLogitsProcessor",
        "EncoderNoRepeatNGramLogitsProcessor",
        "EncoderRepetitionPenaltyLogitsProcessor",
        "EpsilonLogitsWarper",
        "EtaLogitsWarper",
        "ExponentialDecayLengthPenalty",
        "ForcedBOSTokenLogitsProcessor",
        "ForcedEOSTokenLogitsProcessor",
        "InfNanRemoveLogitsProcessor",
        "LogitNormalization",
        "MinLengthLogitsProcessor",
        "MinNewTokensLengthLogitsProcessor",
        "MinPLogitsWarper",
        "NoBadWordsLogitsProcessor",
        "NoRepeatNGramLogitsProcessor",
        "PrefixConstrainedLogitsProcessor",
        "RepetitionPenaltyLogitsProcessor",
        "SequenceBiasLogitsProcessor",
        "SuppressTokensAtBeginLogitsProcessor",
        "SuppressTokensLogitsProcessor",
        "TemperatureLogitsWarper",
        "TopHLogitsWarper",
        "TopKLogitsWarper",
        "TopPLogitsWarper",
        "TypicalLogitsWarper",
    }
)

PROMISE = "forerun.row_wise(processor) promises that it is a function of one row, and drafts are verified with it"

_GUIDANCE = "it runs a second text beside the generated one"
_WATERMARK = "a watermark is drawn along with the text"
_CODEBOOKS = "it counts the codebooks or channels that it was called for"

REFUSED = {
    "AlternatingCodebooksLogitsProcessor": _CODEBOOKS,
    "ClassifierFreeGuidanceLogitsProcessor": _GUIDANCE,
    "DiaClassifierFreeGuidanceLogitsProcessor": _GUIDANCE,
    "DiaEOSChannelFilterLogitsProcessor": _CODEBOOKS,
    "DiaEOSDelayPatternLogitsProcessor": _CODEBOOKS,
    "SynthIDTextWatermarkLogitsProcessor": _WATERMARK,
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": _GUIDANCE,
    "WatermarkLogitsProcessor": _WATERMARK,
    "WhisperNoSpeechDetection": "it notes the first call's probabilities",
    "WhisperTimeStampLogitsProcessor": "it belongs to Whisper's own decoding loop",
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class RowWise:
    """A processor with the promise of row_wise. It is always called with one row at a time."""

    processor: Callable[..., Any]

    def __call__(self, ids: Any, scores: Tensor) -> Any:
        if not isinstance(ids, Tensor) or len(ids) == 1:  # prefix_allowed_tokens_fn has the number of a row there
            return self.processor(ids, scores)
        return torch.cat([self.processor(ids[n : n + 1], scores[n : n + 1]) for n in range(len(ids))])


def row_wise(processor: Callable[..., Any]) -> RowWise:
    """Promise that a logits processor is a function of one row's ids and scores, so that drafts are verified with it.

    It may cache. Without the promise, drafts are verified with a processor only if its code shows the same.
    """
    return RowWise(processor)


@dataclass(frozen=True, slots=True, eq=False)
class ClassifiedProcessors:
    """The processors to call, with nested lists flattened.

    doubt: why they can't be called for drafts, None if they can. own: the name of the caller's first own processor without a
    promise to be row-wise. holds: whether one of them reads something that could be changed from outside.
    """

    processors: tuple[Callable[..., Any], ...]
    doubt: str | None
    own: str | None
    holds: bool


def classify(processors: Iterable[Any]) -> ClassifiedProcessors:
    """Raises UnsupportedOption for objects that can't be called, and for transformers' processors that can't be verified.

    transformers' own processors are known by name, promised ones are trusted, and others are classified by what they can
    reach.
    """
    called: list[Callable[..., Any]] = []
    doubt = own = None
    holds = False
    for processor in _flat(processors):
        if (reason := _objection(processor)) is not None:
            raise UnsupportedOption(f"logits processor {_name(processor)} can't be verified token by token: {reason}")
        classified, reach = processor, ReachableState(trusted)
        if not trusted(processor):
            own = own or _name(processor)
            classified, reason = _classify(processor, _name(processor), reach)
        elif isinstance(processor, PrefixConstrainedLogitsProcessor) and (allowed := _allowed(processor)) is not None:
            classified, reason = _classify(allowed, "with " + _name(allowed), reach)
            classified = PrefixConstrainedLogitsProcessor(classified, processor._num_beams)
        doubt = doubt or reason
        holds = holds or bool(reach.reads)
        called.append(classified)
    return ClassifiedProcessors(tuple(called), doubt, own, holds)


def trusted(processor: Any) -> bool:
    """Whether it is one of transformers' own that are known, or promised."""
    kind = type(processor)
    known = not STATELESS.isdisjoint(base.__name__ for base in kind.__mro__)
    return kind is RowWise or (known and kind.__module__.startswith("transformers."))


def _classify(function: Callable[..., Any], name: str, reach: ReachableState) -> tuple[Callable[..., Any], str | None]:
    """What to call instead of function, and the doubt about it."""
    if (reason := next(doubts(function, reach), None)) is not None:
        return function, f"logits processor {name} may not be a function of the row that it is called with: {reason}"
    return StateWatch(function, reach, partial(_changed, name)) if reach.reads else function, None


def _changed(name: str) -> UnsupportedOption:
    return UnsupportedOption(
        f"logits processor {name} changed what it holds, or it was changed, while the text was written, so drafts can't be "
        "verified with it; if that only saves work, promise it with forerun.row_wise"
    )


def _allowed(processor: PrefixConstrainedLogitsProcessor) -> Callable[..., Any] | None:
    return getattr(processor, "_prefix_allowed_tokens_fn", None)


def _flat(processors: Iterable[Any]) -> Iterator[Any]:
    for processor in processors:
        if isinstance(processor, list | tuple):
            yield from _flat(processor)
        else:
            yield processor


def _objection(processor: Any) -> str | None:
    for kind in type(processor).__mro__:
        if kind.__name__ in REFUSED:
            return REFUSED[kind.__name__]
    if not callable(processor):
        return "it isn't callable; a processor is called with ids [1, n] and scores [1, V]"
    return None if trusted(processor) else _unusual_arguments(processor)


def _unusual_arguments(processor: Callable[..., Any]) -> str | None:
    try:
        signature = inspect.signature(processor)
    except ValueError:  # built-in callables have none
        return None
    try:
        signature.bind(None, None)
    except TypeError as error:
        return f"it must be callable with two arguments, ids and scores ({error})"
    return None


def _name(processor: Any) -> str:
    if isinstance(processor, FunctionType | MethodType):
        return processor.__qualname__
    return type(processor).__name__
