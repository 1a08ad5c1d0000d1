"""An engine's grammars: the tokenizer's tables, built for the first one, and the newest ones, compiled.

llguidance does the parsing. It bounds what a grammar may take, by size and by step.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection
from threading import Lock
from typing import Any, final

from ...core.constraint import Constraint
from ...errors import UnsupportedOption, reason_of
from .matching import Matching
from .source import GrammarSource

KEPT = 32  # compiled grammars
FUEL = 100_000  # for the first step, which a regular expression of nested repetitions can make take half a minute
STATES = 50_000  # of a lexer, one to two kilobytes each
# JSON as Python's json.dumps writes it; a schema with an "x-guidance" says it all itself
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@final
class Grammars:
    """Threads may share it. vocab_size: how many tokens the model has."""

    def __init__(self, tokenizer: Any | None, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._tables: Any = None
        self._compiled: OrderedDict[GrammarSource, Any] = OrderedDict()
        self._lock = Lock()

    def constraint(self, source: GrammarSource | None, ends: Collection[int]) -> Constraint | None:
        """A new request's, None for None. ends: the tokens that end a text, allowed where the grammar accepts it.

        Raises UnsupportedOption without llguidance and for tokenizers that it can't read, ValueError on a grammar that is
        no good, with llguidance's reason.
        """
        if source is None:
            return None
        with self._lock:
            matcher = self._compiled.pop(source, None)
            if matcher is None:
                matcher = self._compile(source, ends)
            self._compiled[source] = matcher
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
            return Matching(matcher, self._tables.eos_tokens, self._vocab_size, ends)

    def _compile(self, source: GrammarSource, ends: Collection[int]) -> Any:
        llguidance = _imported()
        if self._tables is None:
            self._tables = _tables(llguidance, self._tokenizer, self._vocab_size, ends)
        limits = llguidance.LLParserLimits(max_lexer_states=STATES, initial_lexer_fuel=FUEL, verbose_errors=False)
        try:
            text = _in_llguidances_form(llguidance.LLMatcher, source)
        except ValueError as error:
            raise _refused(source, str(error)) from error
        matcher = llguidance.LLMatcher(self._tables, text, log_level=0, limits=limits)
        first = b"" if matcher.is_error() else matcher.compute_bitmask()  # what it takes is known to later copies
        if matcher.is_error():
            raise _refused(source, matcher.get_error())
        if not _allows_text(first, self._tables.eos_tokens):
            raise _refused(source, "it allows no text")
        return matcher


def _in_llguidances_form(matcher: Any, source: GrammarSource) -> str:
    if source.kind == "json_schema":
        style = None if "x-guidance" in json.loads(source.text) else JSON_STYLE
        return str(matcher.grammar_from_json_schema(source.text, defaults=style))
    if source.kind == "regex":
        return str(matcher.grammar_from_regex(source.text))
    if source.kind == "choice":
        return str(matcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, json.loads(source.text)))))
    return str(matcher.grammar_from_lark(source.text))


def _allows_text(bits: bytes, ends: Collection[int]) -> bool:
    mask = int.from_bytes(bits, "little")
    return mask & ~sum(1 << end for end in ends) != 0


def _refused(source: GrammarSource, said: str) -> ValueError:
    return ValueError(f"{source.kind} can't be followed: {_reason(said)}")


def _reason(said: str) -> str:
    """The line of a message that says what is wrong; others show where."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    named = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), None)
    told = named or (lines[0] if lines else "llguidance gives no reason")
    return told if len(told) <= 200 else told[:200] + "..."


def _imported() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise UnsupportedOption("a grammar needs llguidance; install it: pip install 'forerun[grammar]'") from error
    return llguidance


def _tables(llguidance: Any, tokenizer: Any | None, vocab_size: int, ends: Collection[int]) -> Any:
    """The tokenizer as llguidance has it, built in about a second."""
    if tokenizer is None:
        raise UnsupportedOption("a grammar needs a tokenizer; load the model with one")
    name = type(tokenizer).__name__
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UnsupportedOption(f"a grammar needs a tokenizer of the library tokenizers, got a {name}")
    own = type(backend).from_str(backend.to_str())  # the user's stays as it is
    own.no_padding()
    own.no_truncation()
    try:
        return llguidance.LLTokenizer(own.to_str(), n_vocab=vocab_size, eos_token=_end(own, tokenizer, ends))
    except ValueError as error:
        raise UnsupportedOption(f"llguidance can't read the tokenizer, a {name}: {reason_of(error)}") from error


def _end(backend: Any, tokenizer: Any, ends: Collection[int]) -> int:
    """A token that stands for no text."""
    special = [token for token, added in sorted(backend.get_added_tokens_decoder().items()) if added.special]
    for token in (*sorted(ends), tokenizer.eos_token_id, *special):
        if token in special:
            return int(token)
    raise UnsupportedOption("a grammar needs a tokenizer with a special token, such as an end of sequence")
