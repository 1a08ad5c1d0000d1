"""An engine's grammars: what is compiled and kept, and what is refused in a sentence."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from forerun.core.constraint import Constraint
from forerun.engine.grammar import compiled
from forerun.engine.grammar.compiled import KEPT, Grammars
from forerun.engine.grammar.source import GrammarSource
from forerun.errors import UnsupportedOption
from forerun.testing import END, tiny_tokenizer

VOCABULARY = 260


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture
def grammars(tokenizer: Any) -> Grammars:
    return Grammars(tokenizer, VOCABULARY)


def made(grammars: Grammars, kind: str, text: str) -> Constraint:
    constraint = grammars.constraint(GrammarSource(kind, text), (END,))
    assert constraint is not None
    return constraint


def accepts(constraint: Constraint, tokenizer: Any, text: str) -> bool:
    """Whether this is one of its texts, as a whole."""
    drafted: tuple[int, ...] = ()
    for token in tokenizer.encode(text):
        if not constraint.permits(drafted, token):
            return False
        drafted = (*drafted, token)
    return constraint.completes(drafted) or constraint.permits(drafted, END)


@pytest.mark.parametrize(
    ("kind", "text", "right", "wrong"),
    [
        ("json_schema", '{"type": "integer"}', "-12", "1.5"),
        ("json_schema", '{"type": "object"}', '{"a": [1, null]}', "[1]"),
        ("json_schema", "{}", '"text"', "text"),
        ("json_schema", '{"properties": {"b": {}, "a": {}}, "required": ["a", "b"]}', '{"b": 1, "a": 2}', '{"a": 2}'),
        ("json_schema", '{"enum": ["é", 1]}', '"é"', "2"),
        ("regex", "[a-c]{2}", "ab", "abc"),
        ("regex", "a|bé", "bé", "b"),
        ("choice", '["yes", "no \\"x\\" \\u00e9\\\\ \\n"]', 'no "x" é\\ \n', "no"),
        ("grammar", 'start: "(" start ")" | "x"', "((x))", "((x)"),
    ],
)
def test_each_kind_accepts_its_texts_alone(
    grammars: Grammars, tokenizer: Any, kind: str, text: str, right: str, wrong: str
) -> None:
    constraint = made(grammars, kind, text)
    assert accepts(constraint, tokenizer, right)
    assert not accepts(constraint, tokenizer, wrong)


def test_json_is_written_as_python_writes_it_unless_the_schema_says_otherwise(
    grammars: Grammars, tokenizer: Any
) -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]%s}'
    own = made(grammars, "json_schema", schema % "")
    free = made(grammars, "json_schema", schema % ', "x-guidance": {}')
    assert accepts(own, tokenizer, '{"a": [1, 2]}')
    assert not accepts(own, tokenizer, '{"a":[1,2]}')
    assert accepts(free, tokenizer, '{ "a" :\n[1,2]}')


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("json_schema", '{"type": "objekt"}', "Invalid type: objekt"),
        ("json_schema", '{"not": {}}', "Unimplemented keys"),
        ("json_schema", '{"$ref": "http://nowhere/x"}', "not present in a registry"),
        ("json_schema", '{"allOf": [{"type": "string"}, {"type": "integer"}]}', "Unsatisfiable schema"),
        ("json_schema", '{"type": "string", "pattern": "(?=x)"}', "look-around"),
        ("json_schema", '{"items":' * 300 + "{}" + "}" * 300, "recursion limit exceeded"),
        ("regex", "(a", "unclosed group"),
        ("regex", "(" * 3000, "nested|limit|unclosed|exceed"),
        ("grammar", "start: foo", "unknown name"),
        ("grammar", 'foo: "a"', "no start rule"),
        ("grammar", "start: " + "(" * 30_000 + '"a"' + ")" * 30_000, "too deeply nested"),
        ("grammar", 'start: ""', "it allows no text"),
    ],
)
def test_what_is_no_good_is_refused_in_one_sentence(grammars: Grammars, kind: str, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        made(grammars, kind, text)
    told = str(raised.value)
    assert told.startswith(f"{kind} can't be followed: ")
    assert "\n" not in told
    assert len(told) < 260


def test_a_compiled_grammar_is_kept_and_the_oldest_go(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    compiles: list[str] = []
    own = Grammars._compile

    def counted(self: Grammars, source: GrammarSource, ends: Any) -> Any:
        compiles.append(source.text)
        return own(self, source, ends)

    monkeypatch.setattr(Grammars, "_compile", counted)
    for text in ("a", "b", "a"):
        made(grammars, "regex", text)
    assert compiles == ["a", "b"]
    for number in range(KEPT):
        made(grammars, "regex", f"c{number}")
        made(grammars, "regex", "a")
    assert compiles.count("a") == 1
    made(grammars, "regex", "b")
    assert compiles.count("b") == 2


def test_the_tables_are_built_once_and_not_before_they_are_needed(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    own = compiled._tables

    def counted(*given: Any) -> Any:
        built.append(1)
        return own(*given)

    monkeypatch.setattr(compiled, "_tables", counted)
    assert grammars.constraint(None, (END,)) is None
    assert built == []
    made(grammars, "regex", "a")
    made(grammars, "regex", "b")
    assert built == [1]


def test_the_users_tokenizer_stays_as_it_is(tokenizer: Any) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.enable_padding(length=12)
    tokenizer.backend_tokenizer.enable_truncation(max_length=12)
    before = tokenizer.backend_tokenizer.to_str()
    made(Grammars(tokenizer, VOCABULARY), "regex", "a{20}")
    assert tokenizer.backend_tokenizer.to_str() == before


def bare(**vocabulary: int) -> PreTrainedTokenizerFast:
    own = Tokenizer(models.WordLevel({**vocabulary, "[UNK]": len(vocabulary)}, unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=own)


@pytest.mark.parametrize(
    ("given", "size", "said"),
    [
        (lambda: None, VOCABULARY, "a grammar needs a tokenizer; load the model with one"),
        (lambda: object(), VOCABULARY, "library tokenizers, got a object"),
        (lambda: bare(a=0), VOCABULARY, "special token"),
        (tiny_tokenizer, 97, "llguidance can't read the tokenizer, .*vocab size too small; 97 vs 260"),
    ],
    ids=["none", "slow", "no special token", "more tokens than the model"],
)
def test_tokenizers_that_are_of_no_use_are_refused(given: Any, size: int, said: str) -> None:
    with pytest.raises(UnsupportedOption, match=said):
        Grammars(given(), size).constraint(GrammarSource("regex", "a"), ())


def test_without_llguidance_it_says_what_to_install(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UnsupportedOption, match=r"pip install 'forerun\[grammar\]'"):
        made(grammars, "regex", "a")
