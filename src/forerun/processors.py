"""Which logits processors may act: those that are functions of the ids and scores they are given.

Verification asks for the law behind drafted tokens that may be rejected, and asks for a row once, twice or never. A
processor that keeps state from call to call would see another text than the one that is written.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from .errors import UnsupportedOption

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

_GUIDANCE = "it runs a second text beside the one that is written"
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


def stateless(processors: Iterable[Any]) -> tuple[Callable[..., Any], ...]:
    """The processors, nested lists laid flat. Raises UnsupportedOption on one that is stateful or can't be called.

    transformers' own are known by name. Of any other it is told from its code: storing an attribute, a global or a
    variable of an enclosing function is keeping state.
    """
    checked: list[Callable[..., Any]] = []
    for processor in processors:
        if isinstance(processor, list | tuple):
            checked.extend(stateless(processor))
            continue
        if (reason := _objection(processor)) is not None:
            raise UnsupportedOption(f"logits processor {_name(processor)} can't be verified token by token: {reason}")
        checked.append(processor)
    return tuple(checked)


def _objection(processor: Any) -> str | None:
    names = [kind.__name__ for kind in type(processor).__mro__]
    for name in names:
        if name in REFUSED:
            return REFUSED[name]
    if not callable(processor):
        return "it isn't callable; a processor is called with ids [1, n] and scores [1, V]"
    if STATELESS.intersection(names) and type(processor).__module__.startswith("transformers."):
        return None
    if (stored := next(_stored(processor), None)) is not None:
        return (
            f"it keeps state between calls (it stores {stored!r}); if that only saves work and never changes a result, "
            "pass a function that calls it"
        )
    return _unusual_arguments(processor)


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


def _stored(processor: Callable[..., Any]) -> Iterator[str]:
    """The names that a call of processor stores outside of its own variables."""
    code = _code(processor)
    if code is None:
        return
    outer = set(code.co_freevars)
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_ATTR", "STORE_GLOBAL") or (step.opname == "STORE_DEREF" and step.argval in outer):
            yield str(step.argval)


def _code(processor: Callable[..., Any]) -> CodeType | None:
    """The code that runs when processor is called; None for what isn't written in Python."""
    while isinstance(processor, partial):
        processor = processor.func
    function: Any = processor if isinstance(processor, FunctionType | MethodType) else type(processor).__call__
    function = inspect.unwrap(function)
    if isinstance(function, MethodType):
        function = function.__func__
    return function.__code__ if isinstance(function, FunctionType) else None


def _name(processor: Any) -> str:
    if isinstance(processor, FunctionType | MethodType):
        return processor.__qualname__
    return type(processor).__name__
