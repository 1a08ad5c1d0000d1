"""What a request asks its answer to be: a JSON schema, any JSON object, a regular expression, choices, or a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

from ...errors import UnsupportedOption, reason_of

KINDS = ("json_schema", "json_object", "regex", "choice", "grammar")
LONGEST = 1 << 18  # characters
MOST_STATES = 100_000  # of the automaton for "multipleOf", which no limit of llguidance bounds: half a second
MULTIPLE = re.compile(r'"multipleOf"\s*:\s*([0-9]+(?:\.[0-9]+)?)(?:[eE]([+-]?[0-9]+))?')
ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """kind: the request's option, one of KINDS. text: its value; choices are a JSON list of texts."""

    kind: str
    text: str


def source_of(given: Mapping[str, Any]) -> GrammarSource | None:
    """The one that is given among a request's options. Raises UnsupportedOption on two, ValueError on one of no use."""
    named = [kind for kind in KINDS if given.get(kind)]
    if len(named) > 1:
        raise UnsupportedOption(f"an answer follows one of {', '.join(KINDS)}, got {' and '.join(named)}")
    if not named:
        return None
    kind, value = named[0], given[named[0]]
    text = '{"type": "object"}' if kind == "json_object" else json.dumps(list(value)) if kind == "choice" else value
    if len(text) > LONGEST:
        raise ValueError(f"{kind} must hold at most {LONGEST} characters, got {len(text)}")
    if kind in ("json_schema", "grammar"):
        _check_multiples(kind, text)
    return GrammarSource("json_schema" if kind == "json_object" else kind, text)


def schema_text(name: str, value: Any) -> str:
    """A JSON schema, a mapping or JSON text, as JSON text. Raises ValueError."""
    try:
        schema = json.loads(value) if isinstance(value, str | bytes) else value
        text = json.dumps(schema)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{name} must be a JSON schema, as a mapping or as JSON text: {reason_of(error)}") from error
    if schema is True:  # anything
        return "{}"
    if not isinstance(schema, Mapping):
        raise ValueError(f"{name} must be a JSON object (or true), got {text[:60]}")
    return text


def _check_multiples(kind: str, text: str) -> None:
    """A number that is a multiple of several has to be one of their least common multiple."""
    states = 1
    for number, exponent in MULTIPLE.findall(ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)):
        power = int(exponent or 0)
        scaled = Fraction(number) * 10 ** min(max(power, -400), 400)
        states = lcm(states, scaled.numerator or 1)
        if states > MOST_STATES:
            raise ValueError(
                f'{kind} must hold "multipleOf" with a least common multiple of at most {MOST_STATES}, got {number}'
                + (f"e{exponent}" if exponent else "")
            )


def grammar_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that isn't empty, got {value!r}")
    return value


def choices(name: str, value: Any) -> tuple[str, ...]:
    """Texts to choose from. Raises ValueError."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list of texts to choose from, got {value!r}")
    texts = tuple(value)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ValueError(f"{name} must hold texts that aren't empty, got {text!r}")
    if not texts:
        raise ValueError(f"{name} must hold at least one text; leave it out where the answer is free")
    return texts
