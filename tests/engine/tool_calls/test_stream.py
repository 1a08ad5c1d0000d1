"""Calls come out of text in each form, whole or in pieces, and what is no call stays text."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from forerun.engine.tool_calls.events import Arguments, CallBegun, CallBroken, CallEnded, Event, Text, assembled
from forerun.engine.tool_calls.forms import HERMES, LLAMA, MISTRAL, ToolForm
from forerun.engine.tool_calls.stream import CallStream, new_id

NAMES = ("weather", "add")
WEATHER = '{"name": "weather", "arguments": {"city": "Paris", "days": [1, -2.5e3, true, null]}}'
ADD = '{"name": "add", "arguments": {"x": 1}}'
LLAMA_WEATHER, LLAMA_ADD = (call.replace("arguments", "parameters") for call in (WEATHER, ADD))
ARGUMENTS = ('{"city": "Paris", "days": [1, -2.5e3, true, null]}', '{"x": 1}')


def events_of(form: ToolForm, pieces: Sequence[str]) -> list[Event]:
    stream = CallStream(form, NAMES, lambda _: "id")
    return [event for piece in pieces for event in stream.push(piece)] + stream.finish()


def read(form: ToolForm, *pieces: str) -> tuple[str, list[tuple[str, str]]]:
    text, calls = assembled(events_of(form, pieces))
    return text, [(call.name, call.arguments) for call in calls]


CALLING = {
    "hermes": (HERMES, f"<tool_call>\n{WEATHER}\n</tool_call>", "", 1),
    "hermes, twice, with text": (
        HERMES,
        f"I look.\n<tool_call>\n{WEATHER}\n</tool_call>\n<tool_call>{ADD}</tool_call>\n",
        "I look.",
        2,
    ),
    "hermes, the end tag left out": (HERMES, f"<tool_call>{WEATHER}", "", 1),
    "hermes, text after it": (HERMES, f"<tool_call>{WEATHER}</tool_call> Done. ", " Done. ", 1),
    "hermes after something that looks like it": (
        HERMES,
        f"a < b <tool <tool_call>{WEATHER}</tool_call>",
        "a < b <tool",
        1,
    ),
    "hermes, a broken one first": (
        HERMES,
        f"<tool_call> no <tool_call>{WEATHER}</tool_call>",
        "<tool_call> no",
        1,
    ),
    "hermes, opened twice": (HERMES, f"<tool_call><tool_call>{WEATHER}</tool_call>", "<tool_call>", 1),
    "llama": (LLAMA, LLAMA_WEATHER, "", 1),
    "llama, with a tag": (LLAMA, f"<|python_tag|>{LLAMA_WEATHER}\n", "", 1),
    "llama, several": (LLAMA, f"\n{LLAMA_WEATHER}; {LLAMA_ADD}", "", 2),
    "llama, text after it": (LLAMA, f"{LLAMA_WEATHER} and so on", " and so on", 1),
    "mistral": (MISTRAL, f"[TOOL_CALLS] [{WEATHER}]", "", 1),
    "mistral, several": (MISTRAL, f"Well. [TOOL_CALLS][{WEATHER}, {ADD}]", "Well.", 2),
    "mistral, by name": (MISTRAL, f"[TOOL_CALLS]weather{ARGUMENTS[0]}[TOOL_CALLS]add {ARGUMENTS[1]}", "", 2),
    "mistral, by name and mark": (
        MISTRAL,
        f"[TOOL_CALLS]weather[ARGS]{ARGUMENTS[0]}[TOOL_CALLS]add[CALL_ID]abc123DEF[ARGS] {ARGUMENTS[1]}",
        "",
        2,
    ),
}
PLAIN = {
    "text": (HERMES, "Nothing to call.\n"),
    "blanks alone": (HERMES, " \n"),
    "a tag that never comes": (HERMES, "a <tool_cal"),
    "no JSON": (HERMES, "<tool_call>weather(Paris)</tool_call>"),
    "broken JSON": (HERMES, f"so <tool_call>{WEATHER.replace('true', 'True')}</tool_call> there"),
    "cut off": (HERMES, f"<tool_call>{WEATHER[:-20]}"),
    "cut off before it began": (HERMES, '<tool_call>{"name": "wea'),
    "no name": (HERMES, '<tool_call>{"arguments": {"x": 1}}</tool_call>'),
    "no arguments": (HERMES, '<tool_call>{"name": "weather"}</tool_call>'),
    "a name that is no text": (HERMES, '<tool_call>{"name": 3, "arguments": {}}</tool_call>'),
    "an empty name": (HERMES, '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
    "arguments that are no object": (HERMES, '<tool_call>{"name": "add", "arguments": [1]}</tool_call>'),
    "two names": (HERMES, '<tool_call>{"name": "add", "name": "add", "arguments": {}}</tool_call>'),
    "two kinds of arguments": (HERMES, '<tool_call>{"name": "add", "arguments": {}, "parameters": {}}</tool_call>'),
    "a line feed in a string": (HERMES, '<tool_call>{"name": "add", "arguments": {"x": "\n"}}</tool_call>'),
    "a bad escape": (HERMES, '<tool_call>{"name": "add", "arguments": {"x": "\\q"}}</tool_call>'),
    "a bad code": (HERMES, '<tool_call>{"name": "add", "arguments": {"x": "\\u12g4"}}</tool_call>'),
    "a bad number": (HERMES, '<tool_call>{"name": "add", "arguments": {"x": 01}}</tool_call>'),
    "too deep": (HERMES, '<tool_call>{"name": "add", "arguments": {"x": ' + "[" * 5000 + "]" * 5000 + "}}</tool_call>"),
    "llama writes text": (LLAMA, "Paris is sunny. " + LLAMA_WEATHER),
    "llama answers in JSON": (LLAMA, '{"name": "Bob", "parameters": {"age": 3}}'),
    "llama answers in other JSON": (LLAMA, ' {"age": 3} \n'),
    "llama calls what is built in": (LLAMA, '<|python_tag|>search.call(query="x")'),
    "mistral, a name that is none": (MISTRAL, "[TOOL_CALLS]we ather{}"),
    "mistral, another mark": (MISTRAL, "[TOOL_CALLS]weather[IMG]{}"),
    "mistral, an empty list": (MISTRAL, "[TOOL_CALLS] []"),
}


@pytest.mark.parametrize(("form", "text", "said", "count"), CALLING.values(), ids=CALLING)
def test_calls_are_taken_out_of_the_text(form: ToolForm, text: str, said: str, count: int) -> None:
    assert read(form, text) == (said, list(zip(NAMES, ARGUMENTS, strict=True))[:count])
    for _, arguments in read(form, text)[1]:
        assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize(("form", "text"), PLAIN.values(), ids=PLAIN)
def test_what_is_no_call_is_text_as_it_stands(form: ToolForm, text: str) -> None:
    assert read(form, text) == (text, [])


@pytest.mark.parametrize("name", [name for name in (*CALLING, *PLAIN) if name != "too deep"])
def test_pieces_cut_anywhere_come_to_the_same(name: str) -> None:
    form, text = {**CALLING, **PLAIN}[name][:2]
    whole = read(form, text)

    assert read(form, *text) == whole
    for place in range(len(text)):
        assert read(form, text[:place], text[place:]) == whole


def test_random_mixtures_in_random_pieces_come_to_the_same() -> None:
    chance = random.Random(0)
    parts = [
        "<tool_call>",
        "</tool_call>",
        WEATHER,
        ADD,
        "\n",
        " ",
        "text",
        "{",
        '"',
        "}",
        "<",
        "[TOOL_CALLS]",
        "[",
        "]",
        ";",
    ]
    for form in (HERMES, MISTRAL, LLAMA):
        for _ in range(150):
            text = "".join(chance.choices(parts, k=12))
            places = sorted(chance.choices(range(len(text) + 1), k=5))
            cuts = [0, *places, len(text)]
            pieces = [text[a:b] for a, b in pairwise(cuts)]
            said, calls = read(form, text)
            assert read(form, *pieces) == (said, calls)
            if not calls:
                assert said == text


def test_the_name_comes_first_and_the_arguments_as_they_are_written() -> None:
    stream = CallStream(HERMES, NAMES, lambda _: "id")
    first = stream.push('So: <tool_call>{"name": "add", "arguments": {"x"')

    assert first == [Text("So:"), CallBegun(0, "id", "add"), Arguments(0, '{"x"')]
    assert stream.push(": 1") == [Arguments(0, ": 1")]
    assert stream.push("}}") == [Arguments(0, "}"), CallEnded(0)]
    assert stream.push("</tool_call>") == []
    assert stream.finish() == []


def test_arguments_before_the_name_wait_for_it() -> None:
    stream = CallStream(HERMES, NAMES, lambda _: "id")

    assert stream.push('<tool_call>{"arguments": {"x": 1}, "id": 7, ') == []
    assert stream.push('"name": "add"') == [CallBegun(0, "id", "add"), Arguments(0, '{"x": 1}')]
    assert stream.push("}") == [CallEnded(0)]


def test_a_call_that_breaks_after_it_began_is_void_and_keeps_its_index() -> None:
    broken = '<tool_call>{"name": "add", "arguments": {"x": oops'
    events = events_of(HERMES, [f"{broken}</tool_call><tool_call>{ADD}</tool_call>"])

    assert [event for event in events if isinstance(event, CallBroken)] == [CallBroken(0)]
    assert [event.index for event in events if isinstance(event, CallBegun)] == [0, 1]
    assert assembled(events)[0] == f"{broken}</tool_call>"
    assert [call.arguments for call in assembled(events)[1]] == ['{"x": 1}']


def test_text_is_held_back_only_where_it_may_be_an_opening() -> None:
    stream = CallStream(HERMES, NAMES)

    assert stream.push("a <") == [Text("a")]
    assert stream.push("b") == [Text(" <b")]
    assert stream.push(" <tool") == []
    assert stream.finish() == [Text(" <tool")]


def test_ids_are_new_and_as_long_as_the_template_wants() -> None:
    assert len(new_id(MISTRAL)) == 9
    assert new_id(MISTRAL).isalnum()
    assert new_id(HERMES).startswith("call_")
    assert len({new_id(HERMES) for _ in range(50)}) == 50
