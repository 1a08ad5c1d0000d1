"""One call of transformers' generate, as its hook gets it: read once, refused where it can't be honoured.

generate has already merged configurations, made the processors (warpers among them) and the stopping criteria, and handed
the prompt to the streamer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from inspect import currentframe
from typing import Any

import torch
from torch import Tensor
from transformers import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    EosTokenCriteria,
    GenerationConfig,
    MaxLengthCriteria,
    MaxTimeCriteria,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.generation import GenerationMode

from ..core.processors import PROMISE, ClassifiedProcessors, classify
from ..core.values import Sampling
from ..errors import UnsupportedOption

Processor = Callable[[Tensor, Tensor], Tensor]

# What generate adds to a plain call, and what can't change the output.
KNOWN_INPUTS = frozenset({"attention_mask", "position_ids", "cache", "use_cache", "logits_to_keep"})

# Those that look at no scores.
BLIND_CRITERIA = frozenset({EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria, StopStringCriteria})


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What was asked for. padded [B, n] are the prompts as they came; lengths are theirs without the padding on the left.

    processors[b] takes ids [1, m] without padding, as forerun keeps them, and shows the processors row b as they know it.
    eos ends a text wherever it stands; pads: padding follows what has ended. doubt says why generate's own loop has to
    write, for what the processors and criteria may look at; None if forerun can.
    """

    padded: Tensor
    lengths: tuple[int, ...]
    processors: tuple[Processor | None, ...]
    criteria: StoppingCriteriaList
    max_new_tokens: int
    samples: bool
    eos: frozenset[int]
    pads: bool
    pad: int | None
    doubt: str | None
    streamer: Any | None
    returns_dict: bool
    keeps_scores: bool
    keeps_logits: bool

    def prompt(self, row: int) -> list[int]:
        ids: list[int] = self.padded[row, self.padded.shape[1] - self.lengths[row] :].tolist()
        return ids

    def sampling(self, row: int) -> Sampling:
        """The warpers are among the processors, so nothing is left to do but to draw, or to take the best."""
        processor = self.processors[row]
        return Sampling(temperature=float(self.samples), processors=() if processor is None else (processor,))


def read_call(
    input_ids: Tensor,
    processors: Any,
    criteria: StoppingCriteriaList,
    config: GenerationConfig,
    inputs: Mapping[str, Any],
    streamer: Any | None,
) -> Call:
    """Raise UnsupportedOption, with the reason, where forerun would have to ignore or guess something."""
    for reason in _reasons(input_ids, config, inputs):
        raise UnsupportedOption(f"custom_generate: {reason}")
    lengths = _lengths(input_ids, inputs.get("attention_mask"))
    eos = frozenset(int(token) for c in criteria if type(c) is EosTokenCriteria for token in c.eos_token_id)
    pads = any(getattr(c, "eos_token_id", c) is not c for c in criteria)  # as generate tells it
    classified = classify(processors)
    limit = criteria.max_length or config.max_length
    pad = _pad(config)
    if pads and pad is None and len(lengths) > 1:
        raise UnsupportedOption("custom_generate: a batch whose texts end apart needs a pad_token_id")
    call = Call(
        padded=input_ids,
        lengths=lengths,
        processors=tuple(_for_row(classified.processors, input_ids, row, lengths[row]) for row in range(len(lengths))),
        criteria=criteria,
        max_new_tokens=max(int(limit) - input_ids.shape[1], 1),
        samples=bool(config.do_sample),
        eos=eos,
        pads=pads,
        pad=pad,
        doubt=None,
        streamer=streamer,
        returns_dict=bool(config.return_dict_in_generate),
        keeps_scores=bool(config.return_dict_in_generate and config.output_scores),
        keeps_logits=bool(config.return_dict_in_generate and config.output_logits),
    )
    return replace(call, doubt=next(_doubts(call, classified), None))


def _doubts(call: Call, classified: ClassifiedProcessors) -> Iterator[str]:
    """Why only generate's own loop can show processors and criteria what they may look at."""
    if classified.doubt is not None:
        yield f"{classified.doubt}; {PROMISE}"
    if classified.own is not None and len(call.lengths) > 1:
        yield f"logits processor {classified.own} may tell the rows of a batch apart; {PROMISE}"
    # what is called between two tokens may change what a processor reads
    others = [*call.criteria, *([] if call.streamer is None else [call.streamer])]
    foreign = [other for other in others if not type(other).__module__.startswith("transformers.")]
    if classified.holds and foreign:
        yield f"a logits processor holds what {type(foreign[0]).__name__} may change between two tokens; {PROMISE}"
    reading = [criterion for criterion in call.criteria if type(criterion) not in BLIND_CRITERIA]
    if reading and call.keeps_scores and call.pads and len(call.lengths) > 1:
        yield f"{type(reading[0]).__name__} may read the scores of texts that have ended, which forerun doesn't compute"


def of_generate(name: str) -> Any:
    """A variable of the generate call that is running; None if there is none.

    transformers hands a callable neither the streamer, nor the assistant model, nor synced_gpus (5.24,
    GenerationMixin._extract_generation_mode_kwargs). Dropping them in silence would be worse than reading them there.
    """
    frame = currentframe()
    while frame is not None:
        if (frame.f_code.co_name, frame.f_globals.get("__name__")) == ("generate", "transformers.generation.utils"):
            return frame.f_locals.get(name)
        frame = frame.f_back
    return None


def _reasons(input_ids: Tensor, config: GenerationConfig, inputs: Mapping[str, Any]) -> Iterator[str]:
    mode = config.get_generation_mode(of_generate("assistant_model"))
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        yield f"{mode.value.replace('_', ' ')} was asked for; forerun decodes greedily or samples, and drafts by itself"
    for name in ("output_attentions", "output_hidden_states"):
        if getattr(config, name):
            yield f"{name}: packed forwards don't keep them; leave it out, or generate without the hook"
    if of_generate("synced_gpus"):
        yield "synced_gpus: forerun runs a model on one device"
    if (cache := inputs.get("cache")) is not None and cache.get_seq_length() > 0:
        yield "the cache isn't empty, and forerun keeps keys and values of its own; pass the whole text without a cache"
    for name, value in inputs.items():
        if name not in KNOWN_INPUTS and value is not None and value is not False:
            yield f"the model input {name}; forerun runs token ids alone"
    if input_ids.shape[1] == 0:
        yield "an empty prompt; give at least one token"
    mask = inputs.get("attention_mask")
    if mask is not None:
        if mask.shape != input_ids.shape:
            yield f"an attention mask of {list(mask.shape)} for ids of {list(input_ids.shape)}"
        if bool((mask[:, 1:] < mask[:, :-1]).any()):
            yield "an attention mask with zeros after its first one; pad on the left"
        if not bool(mask[:, -1].all()):
            yield "a prompt that is all padding; give at least one token"
    positions = inputs.get("position_ids")
    if positions is not None and not _count_up(positions, mask):
        yield "position_ids that don't count the tokens from 0"


def _count_up(positions: Tensor, mask: Tensor | None) -> bool:
    ones = torch.ones_like(positions) if mask is None else mask.to(positions)
    return torch.equal(positions * ones, (ones.cumsum(-1) - 1) * ones)


def _lengths(input_ids: Tensor, mask: Tensor | None) -> tuple[int, ...]:
    if mask is None:
        return (input_ids.shape[1],) * input_ids.shape[0]
    return tuple(int(length) for length in (mask != 0).sum(-1))


def _pad(config: GenerationConfig) -> int | None:
    """pad_token_id, else the first end of sequence, as generate has it."""
    if config.pad_token_id is not None:
        return int(config.pad_token_id)
    return None if config.eos_token_id is None else int(torch.as_tensor(config.eos_token_id).flatten()[0])


def _for_row(processors: tuple[Processor, ...], padded: Tensor, row: int, length: int) -> Processor | None:
    """One function for all processors of a row, None where there are none."""
    if not processors:
        return None
    own = [_of_row(processor, row, padded.shape[0]) for processor in processors]
    return partial(_process, own, padded[row, : padded.shape[1] - length][None])


def _process(processors: list[Processor], padding: Tensor, ids: Tensor, scores: Tensor) -> Tensor:
    """generate processes on the device of its inputs, which may be another than the model's."""
    ids = torch.cat([padding, ids.to(padding.device)], 1)
    shown = ids.clone()
    processed = scores.to(padding.device)
    for processor in processors:
        processed = processor(shown, processed)
        if processed.shape != scores.shape:
            raise UnsupportedOption(
                f"custom_generate: a logits processor made {list(processed.shape)} of scores {list(scores.shape)}; it must "
                "return scores of the shape that it is given"
            )
    if not torch.equal(shown, ids):
        raise UnsupportedOption("custom_generate: a logits processor wrote into the ids; let it work on a copy of them")
    return processed.to(scores.device)


def _of_row(processor: Any, row: int, rows: int) -> Processor:
    """A processor of transformers that knows the rows of its batch, cut down to one of them; any other as it is."""
    own: Any = copy(processor)
    match processor:
        case RepetitionPenaltyLogitsProcessor() if isinstance(processor.prompt_ignore_length, Tensor):
            own.prompt_ignore_length = processor.prompt_ignore_length[row : row + 1]
        case EncoderRepetitionPenaltyLogitsProcessor():
            source = row * processor.encoder_input_ids.shape[0] // rows
            own.encoder_input_ids = processor.encoder_input_ids[source : source + 1]
        case EncoderNoRepeatNGramLogitsProcessor():
            own.generated_ngrams = [processor.generated_ngrams[row * processor.batch_size // rows]]
            own.batch_size = 1
        case PrefixConstrainedLogitsProcessor():
            allowed, number = processor._prefix_allowed_tokens_fn, row // processor._num_beams
            own = PrefixConstrainedLogitsProcessor(lambda _, ids: allowed(number, ids), 1)
        case _:
            own = processor
    return own  # type: ignore[no-any-return]
