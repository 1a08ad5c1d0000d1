"""Converts the value of a request's option to the type that forerun uses: callers write 4.0, True, numpy's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from .grammar.source import choices, grammar_text, schema_text


def value_of(name: str, value: Any) -> Any:
    """Raises ValueError, with the value and the expected type, for other types. None is allowed only if it means "off"."""
    return KINDS[name](name, value)


def whole_number(name: str, value: Any) -> int:
    """4.0 is one; True isn't. Raises ValueError."""
    if not _is_number(value) or value % 1 != 0:
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    return int(value)


def _number(name: str, value: Any) -> float:
    if not _is_number(value):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, Integral) or value not in (0, 1):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _alternatives(name: str, value: Any) -> int | None:
    """As in OpenAI's chat interface: True asks for the log-probability of the written token alone, False for none."""
    if isinstance(value, bool):
        return 0 if value else None
    return whole_number(name, value)


def _strings(name: str, value: Any) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else _several(name, value, "a text or a list of texts")
    for one in strings:
        if not isinstance(one, str):
            raise ValueError(f"{name} must hold texts, got {one!r}; stop_token_ids takes token ids")
    return strings


def _tokens(name: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, Integral):
        return (whole_number(name, value),)
    return tuple(whole_number(name, token) for token in _several(name, value, "a token id or a list of token ids"))


def _text_or_tokens(name: str, value: Any) -> str | tuple[int, ...]:
    found = value if isinstance(value, str) else _tokens(name, value)
    if not found:
        raise ValueError(f"{name} must not be empty; leave it out where nothing is expected")
    return found


def _functions(name: str, value: Any) -> tuple[Any, ...]:
    # transformers' LogitsProcessorList is a list that can be called itself
    alone = callable(value) and not isinstance(value, list | tuple)
    return (value,) if alone else _several(name, value, "a function of ids and scores, or a list of such")


def _several(name: str, value: Any, wanted: str) -> tuple[Any, ...]:
    from torch import Tensor

    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return tuple(value)


KINDS: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("max_new_tokens", "top_k", "no_repeat_ngram", "seed"), whole_number),
    **dict.fromkeys(("temperature", "top_p", "min_p"), _number),
    **dict.fromkeys(("repetition_penalty", "frequency_penalty", "presence_penalty"), _number),
    **dict.fromkeys(
        ("do_sample", "ignore_eos", "processed_logprobs", "speculate", "json_object", "remember", "generation_config"),
        _switch,
    ),
    "json_schema": schema_text,
    "choice": choices,
    **dict.fromkeys(("regex", "grammar"), grammar_text),
    "logprobs": _alternatives,
    "stop": _strings,
    "stop_token_ids": _tokens,
    "prediction": _text_or_tokens,
    "processors": _functions,
}
