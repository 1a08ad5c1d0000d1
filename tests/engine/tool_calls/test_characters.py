"""The reader of single characters takes what Python's JSON takes, and ends at the last character of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.engine.tool_calls.characters import BLANKS, DEEPEST, Characters, Malformed, read_object, read_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def taken(text: str) -> int | None:
    """How many characters an object at the beginning of a text has; None where it doesn't end or isn't one."""
    chars = Characters()
    reader = read_object(chars, lambda _, first: read_value(chars, first))
    next(reader)
    for place, char in enumerate(text[1:], 2):
        try:
            reader.send(char)
        except StopIteration:
            return place
        except Malformed:
            return None
    return None


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_an_object_ends_where_it_ends(value: dict[str, object], plain: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=plain, indent=indent)

    assert taken(text + "} rest") == len(text)
    assert taken(text[:-1]) is None


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}[]":,0123456789.-+eEtrufalsn\\ \n', max_size=12))
def test_what_python_refuses_is_malformed(inside: str) -> None:
    text = '{"a": ' + inside + "}"
    size = taken(text)
    if size is not None:
        json.loads(text[:size])
    else:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


def test_depth_has_an_end() -> None:
    def nested(depth: int) -> str:
        return '{"a": ' + "[" * depth + "]" * depth + "}"

    assert taken(nested(DEEPEST)) == len(nested(DEEPEST))
    assert taken(nested(DEEPEST + 2)) is None


def test_a_key_that_comes_twice_is_malformed() -> None:
    assert taken('{"a": 1, "a": 2}') is None


def test_new_characters_are_heard_once_also_where_one_is_put_back() -> None:
    heard: list[str] = []
    chars = Characters()
    chars.heard = heard.append
    reader = read_object(chars, lambda _, first: read_value(chars, first))
    next(reader)
    for char in '"a": 12':
        reader.send(char)
    with pytest.raises(StopIteration):
        reader.send("}")

    assert "".join(heard) == '"a": 12}'
    assert set(BLANKS) == {" ", "\t", "\n", "\r"}
