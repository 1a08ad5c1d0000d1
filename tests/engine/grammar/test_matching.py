"""A grammar along a text: the state after any drafted path is that of a matcher that read this path alone."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from llguidance import LLMatcher, LLTokenizer

from forerun.core.constraint import Constraint
from forerun.engine.grammar.compiled import Grammars
from forerun.engine.grammar.matching import LONGEST_FORCED, Matching
from forerun.engine.grammar.source import GrammarSource
from forerun.errors import UnsupportedOption
from forerun.testing import END, tiny_tokenizer

VOCABULARY = 262  # two more than the tokenizer has
SCHEMA = (
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "ok": {"type": "boolean"}}, '
    '"required": ["name", "ok"], "additionalProperties": false}'
)
SOURCES = {
    "schema": GrammarSource("json_schema", SCHEMA),
    "regex": GrammarSource("regex", "[a-c]{2,4}(: [0-9]+)?"),
    "choice": GrammarSource("choice", '["red", "ready", "read more", "blue"]'),
    "grammar": GrammarSource("grammar", 'start: "(" start ")" | "x" "y"*'),
    "can't be taken back": GrammarSource("grammar", 'start: "<" word ">"\nword[max_tokens=3]: /[a-c]*/'),
}


@cache
def grammars() -> Grammars:
    return Grammars(tiny_tokenizer(), VOCABULARY)


def begun(name: str, ends: tuple[int, ...] = (END,)) -> Constraint:
    constraint = grammars().constraint(SOURCES[name], ends)
    assert constraint is not None
    return constraint


def ids(text: str) -> tuple[int, ...]:
    return tuple(tiny_tokenizer().encode(text))


@cache
def tables() -> Any:
    return LLTokenizer(tiny_tokenizer().backend_tokenizer.to_str(), n_vocab=VOCABULARY, eos_token=END)


def alone(name: str, path: tuple[int, ...]) -> list[bool] | None:
    """What a matcher of llguidance's own allows after this path, None where it isn't of the grammar or has ended."""
    source = SOURCES[name]
    text = {
        "regex": LLMatcher.grammar_from_regex,
        "grammar": LLMatcher.grammar_from_lark,
        "choice": lambda given: LLMatcher.grammar_from_lark('start: "red" | "ready" | "read more" | "blue"'),
        "json_schema": lambda given: LLMatcher.grammar_from_json_schema(
            given, defaults={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
        ),
    }[source.kind](source.text)
    matcher = LLMatcher(tables(), text)
    if END in path or matcher.try_consume_tokens(list(path)) < len(path):
        return None
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")[:VOCABULARY]
    return [bool(bit) for bit in bits]


def listed(mask: torch.Tensor | None) -> list[bool] | None:
    return None if mask is None else mask.tolist()


@pytest.mark.parametrize("name", SOURCES)
def test_after_any_path_it_allows_what_a_matcher_of_this_path_alone_allows(name: str) -> None:
    random, constraint, emitted = Random(name), begun(name), ()
    for _ in range(6):
        paths: list[tuple[int, ...]] = [()]
        for _ in range(8):  # a tree of drafts, some of them forbidden
            above = random.choice(paths)
            mask = alone(name, (*emitted, *above))
            fine = [token for token in range(VOCABULARY) if mask and mask[token]]
            token = random.choice(fine) if fine and random.random() < 0.8 else random.randrange(260)
            paths.append((*above, token))
        for path in random.sample(paths, len(paths)):
            expected = alone(name, (*emitted, *path))
            if random.random() < 0.5:
                for token in {*random.sample(range(VOCABULARY), 20), *ids('a":')}:
                    assert constraint.permits(path, token) == bool(expected and expected[token])
            assert listed(constraint.allowed(path)) == expected
        going = [path for path in paths if path and alone(name, (*emitted, *path)) and END not in path]
        if not going:
            break
        chosen = random.choice(going)
        constraint.emit(chosen)
        emitted = (*emitted, *chosen)


def test_an_end_is_allowed_exactly_where_the_grammar_accepts() -> None:
    constraint, other = begun("regex", (END, 261)), begun("regex", ())
    for text, accepted in (("a", False), ("ab", True), ("ab:", False), ("ab: 1", True)):
        path = ids(text)
        assert [constraint.permits(path, end) for end in (END, 261, 257)] == [accepted, accepted, False]
        mask = constraint.allowed(path)
        assert mask is not None
        assert [bool(mask[end]) for end in (END, 261, 257)] == [accepted, accepted, False]
        assert not other.permits(path, END)
        assert listed(other.allowed(path))[END] is False  # type: ignore[index]


def test_a_text_is_complete_where_nothing_but_the_end_can_follow() -> None:
    for ends in ((END,), (END, 261), ()):
        choice = begun("choice", ends)
        assert not choice.completes(ids("re"))
        assert not choice.completes(ids("red"[:2]))
        assert choice.completes(ids("red"))
        assert not choice.completes(ids("read"))
        assert choice.completes(ids("ready"))
        choice.emit(ids("rea"))
        assert not choice.complete
        choice.emit(ids("dy"))
        assert choice.complete
        assert choice.allowed(()) is None
        assert not choice.permits((), ids("d")[0])
        assert choice.forced(9) == ()


def test_a_text_is_complete_after_an_end_of_sequence() -> None:
    constraint = begun("regex")
    constraint.emit((*ids("abc"), END))
    assert constraint.complete


def test_after_a_text_that_is_not_of_the_grammar_nothing_counts() -> None:
    constraint = begun("regex")
    assert constraint.allowed(ids("xy")) is None
    assert constraint.allowed((*ids("ab"), END)) is None
    assert not constraint.permits(ids("xy"), ids("a")[0])
    assert not constraint.completes(ids("xy"))
    assert constraint.permits(ids("a"), ids("b")[0])


def test_tokens_out_of_the_vocabulary_are_forbidden() -> None:
    constraint = begun("regex")
    assert not constraint.permits((), VOCABULARY)
    assert not constraint.permits((), -1)
    constraint.allowed(())
    assert not constraint.permits((), VOCABULARY)
    assert not constraint.permits((), -1)


def test_forced_tokens_are_those_that_are_the_only_ones() -> None:
    constraint = begun("schema")
    forced = constraint.forced(100)
    assert forced == ids('{"name": "')
    for place in range(len(forced)):
        mask = constraint.allowed(forced[:place])
        assert mask is not None
        assert mask.nonzero()[:, 0].tolist() == [forced[place]]
    assert constraint.forced(3) == forced[:3]
    assert constraint.forced(0) == ()
    constraint.emit((*forced, *ids('Bo"')))
    assert constraint.forced(100) == ids(', "ok": ')


def test_forced_tokens_have_a_limit() -> None:
    constraint = grammars().constraint(GrammarSource("choice", f'["{"x" * 3 * LONGEST_FORCED}"]'), (END,))
    assert constraint is not None
    assert len(constraint.forced(10_000)) == LONGEST_FORCED


def test_requests_of_one_grammar_leave_each_other_alone() -> None:
    one, other = begun("regex"), begun("regex")
    one.emit(ids("ab: "))
    assert one.permits((), ids("7")[0])
    assert other.permits((), ids("a")[0])
    assert not other.permits((), ids("7")[0])


def test_a_grammar_that_takes_too_much_on_the_way_is_an_error_in_a_sentence() -> None:
    begin = LLMatcher(tables(), LLMatcher.grammar_from_regex("[ab]*a[ab]{12}"))
    constraint = Matching(begin, [END], VOCABULARY, (END,))

    class Failing:
        """In the place of a matcher that has exceeded its limits."""

        def __init__(self, own: Any) -> None:
            self._own = own

        def __getattr__(self, name: str) -> Any:
            return getattr(self._own, name)

        def is_error(self) -> bool:
            return True

        def get_error(self) -> str:
            return "Too many states\n<state>"

    constraint._matcher = Failing(constraint._matcher)
    with pytest.raises(UnsupportedOption, match=r"^the grammar can't be followed any further: Too many states$"):
        constraint.allowed(())
