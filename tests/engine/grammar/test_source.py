"""What a request asks its answer to be, checked before anything runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forerun.engine.grammar.source import KINDS, LONGEST, GrammarSource, choices, grammar_text, schema_text, source_of
from forerun.errors import UnsupportedOption

GIVEN: dict[str, Any] = {
    "json_schema": '{"type": "integer"}',
    "json_object": True,
    "regex": "a+",
    "choice": ("left", "right"),
    "grammar": 'start: "a"',
}


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("json_schema", GrammarSource("json_schema", '{"type": "integer"}')),
        ("json_object", GrammarSource("json_schema", '{"type": "object"}')),
        ("regex", GrammarSource("regex", "a+")),
        ("choice", GrammarSource("choice", '["left", "right"]')),
        ("grammar", GrammarSource("grammar", 'start: "a"')),
    ],
)
def test_each_option_is_a_source(kind: str, source: GrammarSource) -> None:
    assert source_of({kind: GIVEN[kind]}) == source
    assert source_of({**dict.fromkeys(KINDS), "json_object": False, kind: GIVEN[kind]}) == source


def test_without_any_there_is_none() -> None:
    assert source_of({}) is None
    assert source_of({**dict.fromkeys(KINDS), "json_object": False}) is None


@pytest.mark.parametrize("other", [kind for kind in KINDS if kind != "regex"])
def test_two_are_refused_by_name(other: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"got .*{other}.*") as raised:
        source_of({"regex": "a", other: GIVEN[other]})
    assert "regex" in str(raised.value)


def test_a_text_without_end_is_refused() -> None:
    assert source_of({"regex": "a" * LONGEST}) is not None
    with pytest.raises(ValueError, match=f"regex must hold at most {LONGEST} characters, got {LONGEST + 1}"):
        source_of({"regex": "a" * (LONGEST + 1)})


def test_a_schema_is_a_mapping_or_its_text_with_its_keys_in_order() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    assert schema_text("json_schema", schema) == json.dumps(schema) == schema_text("json_schema", json.dumps(schema))
    assert schema_text("json_schema", True) == schema_text("json_schema", "true") == "{}"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('{"type": ', "Expecting value"),
        ("", "Expecting value"),
        ("[" * 100_000, "recursion"),
        ([1], r"must be a JSON object \(or true\), got \[1\]"),
        ("3", r"must be a JSON object \(or true\), got 3"),
        ({"enum": {1, 2}}, "set is not JSON serializable"),
        (3, "must be a JSON object"),
        (False, "must be a JSON object"),
    ],
)
def test_what_is_no_schema_is_refused(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schema_text("json_schema", value)


@pytest.mark.parametrize("value", ["", "  ", 3, b"a"])
def test_an_expression_or_a_grammar_is_a_text(value: Any) -> None:
    assert grammar_text("regex", "a") == "a"
    with pytest.raises(ValueError, match="regex must be a text that isn't empty"):
        grammar_text("regex", value)


@pytest.mark.parametrize("value", ["left", [], [""], [1], {"a": 1}, 3])
def test_choices_are_texts(value: Any) -> None:
    assert choices("choice", iter(["a", "b"])) == ("a", "b")
    with pytest.raises(ValueError, match="choice must"):
        choices("choice", value)


@pytest.mark.parametrize(
    ("schema", "fine"),
    [
        ({"multipleOf": 100_000}, True),
        ({"multipleOf": 0.01}, True),
        ({"anyOf": [{"multipleOf": 60}, {"multipleOf": 1000.5}]}, True),
        ({"properties": {"multipleOf": {"type": "integer"}}}, True),
        ({"multipleOf": 100_001}, False),
        ({"multipleOf": 1e300}, False),
        ({"items": {"multipleOf": 1.0000001}}, False),
        ({"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}, False),
    ],
)
def test_multiples_that_would_take_minutes_to_compile_are_refused(schema: dict[str, Any], fine: bool) -> None:
    text = schema_text("json_schema", schema)
    hidden = "start: %json " + text.replace("multipleOf", "multipl\\u0065Of")
    for given in ({"json_schema": text}, {"grammar": hidden}):
        if fine:
            assert source_of(given) is not None
            continue
        with pytest.raises(ValueError, match='"multipleOf" with a least common multiple of at most 100000'):
            source_of(given)
