"""Reads a checkpoint's generation config: which fields are applied, which have no effect here, and which are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import UnsupportedOption
from ..option_values import value_of

_BEAMS = "only beam search reads it, which is refused"
_CACHE = "where transformers keeps keys and values; forerun keeps its own, unrounded"
_SPEED = "how fast transformers is, not what it writes"
_ASSISTANT = "how an assistant drafts for transformers; forerun drafts by itself"
_RETURNS = "what generate hands back beside the text"
_TOKENS = "padding and beginnings; forerun pads nothing, and a prompt begins as it is handed in"
_ABOUT = "about the file itself"

# field -> why it changes no text of forerun's
HARMLESS: Mapping[str, str] = {
    **dict.fromkeys(("early_stopping", "length_penalty", "diversity_penalty", "num_beam_groups"), _BEAMS),
    **dict.fromkeys(
        ("use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size"), _CACHE
    ),
    **dict.fromkeys(("compile_config", "disable_compile", "continuous_batching_config", "low_memory"), _SPEED),
    **dict.fromkeys(("use_mtp", "speculation_type", "prompt_lookup_num_tokens", "max_matching_ngram_size"), _ASSISTANT),
    **dict.fromkeys(("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_early_exit"), _ASSISTANT),
    **dict.fromkeys(("assistant_lookbehind", "target_lookbehind", "assistant_confidence_threshold"), _ASSISTANT),
    **dict.fromkeys(("output_attentions", "output_hidden_states", "output_scores", "output_logits"), _RETURNS),
    "return_dict_in_generate": _RETURNS,
    "num_return_sequences": "a request has one answer; ask again, with another seed, for another",
    **dict.fromkeys(("pad_token_id", "bos_token_id", "decoder_start_token_id"), _TOKENS),
    **dict.fromkeys(("transformers_version", "_from_model_config"), _ABOUT),
}


def _is_there(value: Any) -> bool:
    return True


def _is_idle(value: Any, off: Any) -> bool:
    return not value if isinstance(value, list | tuple | dict) else isinstance(value, int | float) and value == off


# field -> (whether a value asks for something, why that can't be done)
REFUSED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "num_beams": (lambda value: value > 1, "beam search keeps several texts at a time, and forerun writes one"),
    "penalty_alpha": (lambda value: value > 0, "contrastive search compares hidden states of every candidate"),
    "dola_layers": (_is_there, "it contrasts the logits of several layers"),
    "constraints": (_is_there, "constraints need beam search"),
    "force_words_ids": (_is_there, "words are forced by beam search"),
    "guidance_scale": (lambda value: value != 1, "guidance runs a second text beside the one that is written"),
    "watermarking_config": (_is_there, "a watermark is drawn along with the text"),
    "token_healing": (bool, "it writes the prompt's last token anew"),
    "max_time": (_is_there, "a text that ends by the clock is another one each time"),
    "is_assistant": (bool, "an assistant's text ends where it is unsure"),
    "assistant_ensemble_weight": (_is_there, "it lets an assistant change the model's law"),
}

# field of the file -> option of a request
OPTIONS: Mapping[str, str] = {
    "max_new_tokens": "max_new_tokens",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "stop_strings": "stop",
}
# of those the value that asks for nothing
OFF = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
OPTIONS_IF_DRAWN = ("temperature", "top_k", "top_p", "min_p")

# field -> the value that asks for nothing; checkpoint_processors makes transformers' processors of them
PROCESSORS: Mapping[str, Any] = {
    "sequence_bias": None,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "min_length": 0,
    "min_new_tokens": 0,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "remove_invalid_values": False,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "renormalize_logits": False,
}
# field -> whether a value asks for anything
WARPERS: Mapping[str, Callable[[Any], bool]] = {
    "top_h": _is_there,
    "typical_p": lambda value: value < 1,
    "epsilon_cutoff": lambda value: 0 < value < 1,
    "eta_cutoff": lambda value: 0 < value < 1,
}
LENGTH, SAMPLES, ENDS = "max_length", "do_sample", "eos_token_id"


@dataclass(frozen=True, slots=True)
class CheckpointDefaults:
    """The defaults for options that a request leaves out.

    options and options_if_drawn are of Options by their names; processors and warpers of the generation config by its
    own. samples: the checkpoint asks for sampling by default; forerun samples only if a request asks for it.
    ends: the tokens that end a text.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    options_if_drawn: Mapping[str, Any] = field(default_factory=dict)
    processors: Mapping[str, Any] = field(default_factory=dict)
    warpers: Mapping[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    samples: bool = False
    ends: frozenset[int] = frozenset()

    @property
    def fields(self) -> list[str]:
        """The fields that act in every request that gives nothing else, drawn or not."""
        return [*(name for name, option in OPTIONS.items() if option in self.options), *self.processors]

    def options_after(self, prompt_length: int) -> Mapping[str, Any]:
        """options; where the file counts the prompt among a text's tokens, max_new_tokens is what is left, 0 at least."""
        if self.max_length is None or "max_new_tokens" in self.options:
            return self.options
        return {**self.options, "max_new_tokens": max(self.max_length - prompt_length, 0)}


def read_defaults(config: Any) -> CheckpointDefaults:
    """The defaults of a transformers GenerationConfig, or of none.

    Raises UnsupportedOption that names the field where one asks for what can't be done, or holds what no request may give.
    """
    for name, (asks, reason) in REFUSED.items():
        value = getattr(config, name, None)
        if value is not None and _read(name, value, asks):
            raise refused(name, value, reason)
    options = {
        option: _read(name, value, value_of, option)
        for name, option, value in _asked(config, OPTIONS)
        if value != OFF.get(name)
    }
    drawn = {name: name for name in OPTIONS_IF_DRAWN}
    processors = {name: value for name, off, value in _asked(config, PROCESSORS) if not _is_idle(value, off)}
    if getattr(config, "min_new_tokens", None) is not None:
        processors.pop("min_length", None)  # which generate then overwrites
    length, ends = getattr(config, LENGTH, None), getattr(config, ENDS, None)
    return CheckpointDefaults(
        options,
        {option: _read(name, value, value_of, option) for name, option, value in _asked(config, drawn)},
        processors,
        {name: value for name, asks, value in _asked(config, WARPERS) if _read(name, value, asks)},
        None if length is None else _read(LENGTH, length, value_of, "max_new_tokens"),
        getattr(config, SAMPLES, None) is True,
        frozenset() if ends is None else frozenset(_read(ENDS, ends, value_of, "stop_token_ids")),
    )


def refused(name: str, value: Any, reason: object) -> UnsupportedOption:
    """The error for a field that can't be applied."""
    told = repr(value)
    return UnsupportedOption(
        f"the checkpoint's generation config has {name}={told if len(told) < 80 else told[:76] + ' ...'}: {reason}; "
        "change it there, or pass generation_config=False (--no-generation-config) to leave all of it out"
    )


def _asked(config: Any, names: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Of those fields that hold a value: the name, what stands beside it in `names`, the value."""
    for name, beside in names.items():
        value = getattr(config, name, None)
        if value is not None:
            yield name, beside, value


def _read(name: str, value: Any, read: Callable[..., Any], *before: Any) -> Any:
    try:
        return read(*before, value)
    except (TypeError, ValueError) as error:
        raise refused(name, value, error) from error
