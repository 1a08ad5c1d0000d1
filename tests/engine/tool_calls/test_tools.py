"""Functions that a request offers are checked, and what has to be called is a schema."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.engine.tool_calls.tools import tools_of
from forerun.errors import UnsupportedOption


def function(name: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [function("weather", description="The weather.", parameters=CITY), function("now")]
NAMED = {"type": "function", "function": {"name": "now"}}


def test_what_a_function_leaves_out_is_filled_in_for_templates_that_read_it() -> None:
    tools = tools_of(TOOLS)

    assert tools is not None
    assert (tools.names, tools.must) == (("weather", "now"), ())
    assert tools.definitions[0] == TOOLS[0]
    nothing = {"type": "object", "properties": {}}
    assert tools.definitions[1]["function"] == {"name": "now", "description": "", "parameters": nothing}


@pytest.mark.parametrize("given", [(None,), ([],), (None, "auto"), (TOOLS, "none"), ([], "none")])
def test_without_functions_or_where_none_may_be_called_there_are_no_tools(given: tuple[Any, ...]) -> None:
    assert tools_of(*given) is None


def test_what_must_be_called_is_a_schema_of_its_name_and_arguments() -> None:
    required, named = tools_of(TOOLS, "required"), tools_of(TOOLS, NAMED)

    assert required is not None
    assert named is not None
    assert (required.must, named.must) == (("weather", "now"), ("now",))
    call = {"name": "weather", "arguments": {"city": "Paris"}}
    jsonschema.validate(call, required.schema())
    for schema, wrong in (
        (named.schema(), call),
        (required.schema(), {"name": "weather", "arguments": {}}),
        (required.schema(), {"name": "other", "arguments": {}}),
        (required.schema(), {"name": "now"}),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


@pytest.mark.parametrize(
    ("tools", "choice", "message"),
    [
        ("weather", None, "tools must be a list of functions, got str"),
        ([{"type": "web_search"}], None, "tools[0] must be an object of type \"function\", got 'web_search'"),
        (["weather"], None, "tools[0] must be an object of type \"function\", got 'weather'"),
        ([{"type": "function"}], None, "tools[0].function must be an object with a name, got None"),
        ([TOOLS[0], function("a b")], None, "tools[1].function.name must be 1 to 64 letters"),
        ([function(7)], None, "tools[0].function.name must be 1 to 64 letters"),
        ([function("a", description=3)], None, "tools[0].function.description must be text, got 3"),
        ([function("a", parameters="x")], None, "tools[0].function.parameters must be a JSON schema, got 'x'"),
        ([function(f"f{n}") for n in range(129)], None, "tools must hold at most 128 functions, got 129"),
        ([function("a"), function("a")], None, "tools holds two functions named 'a'"),
        (TOOLS, "always", "tool_choice must be 'none', 'auto', 'required' or {"),
        (TOOLS, {"type": "function"}, "tool_choice must be"),
        (TOOLS, ["auto"], "tool_choice must be"),
    ],
)
def test_what_is_no_function_or_no_choice_is_one_sentence_with_its_place(tools: Any, choice: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tools_of(tools, choice)


KEYS = st.sampled_from(["type", "function", "name", "parameters", "description"])
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["function", "weather", "auto", "required", "none", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(ANYTHING, ANYTHING)
def test_whatever_comes_is_tools_or_a_value_error(tools: Any, choice: Any) -> None:
    for given_tools in (tools, [tools], [*TOOLS, tools], TOOLS):
        try:
            found = tools_of(given_tools, choice)
            told = "tools" if found is None or found.schema() else ""
        except ValueError as error:
            told = str(error)
        assert told.startswith(("tools", "tool_choice"))


@pytest.mark.parametrize(
    ("tools", "choice", "message"),
    [
        (TOOLS, {"type": "function", "function": {"name": "add"}}, "asks for 'add', and tools holds weather, now"),
        (None, "required", "asks for a call, and tools holds no function"),
        (None, NAMED, "asks for 'now', and tools holds no function"),
    ],
)
def test_a_function_that_is_not_there_can_not_be_asked_for(tools: Any, choice: Any, message: str) -> None:
    with pytest.raises(UnsupportedOption, match=message):
        tools_of(tools, choice)
