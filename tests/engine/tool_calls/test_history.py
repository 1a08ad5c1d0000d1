"""Calls that an assistant made before come back as clients send them, and templates read objects."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.engine.prompts.chat import encode_messages
from forerun.engine.tool_calls.history import with_arguments_read
from forerun.testing import tiny_tokenizer

TEMPLATE = (
    "{% for message in messages %}{{ message.role }}:{% for call in message.tool_calls or [] %}"
    "{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}{{ message.content or '' }};{% endfor %}"
)


def said(arguments: Any, **more: Any) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "sunny", **more}]


@pytest.mark.parametrize("arguments", ['{"city": "Paris"}', {"city": "Paris"}])
def test_arguments_become_objects_so_that_a_template_writes_them_once(arguments: Any) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    messages = with_arguments_read(said(arguments, tool_call_id="call_1"))

    assert messages[1]["tool_call_id"] == "call_1"
    text = tokenizer.decode(encode_messages(messages, tokenizer))
    assert text == 'assistant:weather{"city": "Paris"};tool:sunny;'


@pytest.mark.parametrize("arguments", ["", None, "{}"])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    assert with_arguments_read(said(arguments))[0]["tool_calls"][0]["function"]["arguments"] == {}


def test_messages_without_calls_stay_as_they_are() -> None:
    messages = [{"role": "user", "content": "hi"}, "no message"]

    assert with_arguments_read(messages) == messages


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{oops", r"messages\[0\]\.tool_calls\[0\]\.function\.arguments is no JSON"),
        ("[" * 100_000, r"arguments is no JSON"),
        ("[1]", r"arguments must be a JSON object, got \[1\]"),
        (3, r"arguments must be a JSON object, got 3"),
    ],
)
def test_arguments_that_are_no_object_are_refused_with_their_place(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_arguments_read(said(arguments))


@pytest.mark.parametrize("call", ["weather", {}, {"function": {"arguments": "{}"}}])
def test_a_call_without_a_name_is_refused(call: Any) -> None:
    with pytest.raises(ValueError, match="must hold a function with a name"):
        with_arguments_read([{"role": "assistant", "tool_calls": [call]}])
