"""The logits processors that a checkpoint's generation config asks for: transformers' own, made for one request.

Their arguments and order are those of GenerationMixin._get_logits_processor (5.24).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from transformers import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    ExponentialDecayLengthPenalty,
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    InfNanRemoveLogitsProcessor,
    LogitNormalization,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TopHLogitsWarper,
    TypicalLogitsWarper,
)

from ...core.values import Processor
from .defaults import refused


def made_of(
    kinds: Mapping[str, Maker], fields: Mapping[str, Any], context: ProcessorContext
) -> Iterator[tuple[str, Processor]]:
    """The fields among `kinds` that apply, with their processors, in the order of `kinds`.

    Raises UnsupportedOption that names a field whose processor can't be made.
    """
    for name, make in kinds.items():
        if name not in fields:
            continue
        try:
            looked_up: Callable[[Any], Iterable[int]] = LOOKED_UP.get(name, _no_tokens)
            for token in looked_up(fields[name]):
                if not 0 <= token < context.vocab_size:
                    raise ValueError(f"its tokens must be in 0..{context.vocab_size - 1}")
            made = make(fields[name], context, fields)
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            raise refused(name, fields[name], error) from error
        if made is not None:
            yield name, made


def _min_length(value: int, context: ProcessorContext, fields: Mapping[str, Any]) -> Processor | None:
    return None if context.end_ids is None else MinLengthLogitsProcessor(value, context.end_ids, device=context.device)


def _min_new_tokens(value: int, context: ProcessorContext, fields: Mapping[str, Any]) -> Processor | None:
    ends = context.end_ids
    return None if ends is None else MinNewTokensLengthLogitsProcessor(len(context.ids), value, ends, context.device)


def _decay(value: Sequence[Any], context: ProcessorContext, fields: Mapping[str, Any]) -> Processor | None:
    if context.end_ids is None:
        return None
    start, factor = value
    made: Processor = ExponentialDecayLengthPenalty((int(start), float(factor)), context.end_ids, len(context.ids))
    return made


def _begin_suppress(value: list[int], context: ProcessorContext, fields: Mapping[str, Any]) -> Processor:
    forced_first = len(context.ids) == 1 and "forced_bos_token_id" in fields
    made: Processor = SuppressTokensAtBeginLogitsProcessor(
        value, len(context.ids) + forced_first, device=context.device
    )
    return made


def _no_tokens(value: Any) -> Sequence[int]:
    return ()


def _biased(value: Any) -> Iterator[int]:
    return chain.from_iterable(value if isinstance(value, Mapping) else (tokens for tokens, _ in value))


@dataclass(frozen=True, slots=True)
class ProcessorContext:
    """What processors are made for: the prompt, the limit of tokens in all, and the model.

    ends: the tokens that end a text, including the request's own.
    """

    ids: Sequence[int]
    limit: int
    ends: Collection[int]
    vocab_size: int
    device: torch.device

    @property
    def end_ids(self) -> Tensor | None:
        known = sorted(token for token in self.ends if 0 <= token < self.vocab_size)
        return torch.tensor(known, device=self.device) if known else None

    @property
    def prompt(self) -> Tensor:
        return torch.tensor([self.ids], device=self.device)


# (the field's value, the place, all fields) -> a processor, None where it has nothing to act on
Maker = Callable[[Any, ProcessorContext, Mapping[str, Any]], Processor | None]

BEFORE_PENALTIES: Mapping[str, Maker] = {
    "sequence_bias": lambda value, context, _: SequenceBiasLogitsProcessor(value),
    "encoder_repetition_penalty": lambda value, context, _: EncoderRepetitionPenaltyLogitsProcessor(
        value, context.prompt
    ),
}
AFTER_PENALTIES: Mapping[str, Maker] = {
    "encoder_no_repeat_ngram_size": lambda value, context, _: EncoderNoRepeatNGramLogitsProcessor(
        value, context.prompt
    ),
    "bad_words_ids": lambda value, context, _: NoBadWordsLogitsProcessor(value, context.end_ids),
    "min_length": _min_length,
    "min_new_tokens": _min_new_tokens,
    "forced_bos_token_id": lambda value, context, _: ForcedBOSTokenLogitsProcessor(value),
    "forced_eos_token_id": lambda value, context, _: ForcedEOSTokenLogitsProcessor(
        context.limit, value, context.device
    ),
    "remove_invalid_values": lambda value, context, _: InfNanRemoveLogitsProcessor(),
    "exponential_decay_length_penalty": _decay,
    "suppress_tokens": lambda value, context, _: SuppressTokensLogitsProcessor(value, context.device),
    "begin_suppress_tokens": _begin_suppress,
}
# of a drawn text this changes nothing: its softmax is the same
LAST: Mapping[str, Maker] = {"renormalize_logits": lambda value, context, _: LogitNormalization()}
WARPERS: Mapping[str, Maker] = {
    "top_h": lambda value, context, _: TopHLogitsWarper(value),
    "typical_p": lambda value, context, _: TypicalLogitsWarper(value),
    "epsilon_cutoff": lambda value, context, _: EpsilonLogitsWarper(value),
    "eta_cutoff": lambda value, context, _: EtaLogitsWarper(value, device=context.device),
}
# the tokens that are looked up by id in a row, and so must be there
LOOKED_UP: Mapping[str, Callable[[Any], Iterable[int]]] = {
    "sequence_bias": _biased,
    "bad_words_ids": chain.from_iterable,
    "forced_bos_token_id": lambda value: (value,),
    "forced_eos_token_id": lambda value: (value,) if isinstance(value, int) else value,
}
