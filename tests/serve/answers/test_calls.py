"""Text with calls becomes deltas as OpenAI's clients add them up, and the message that they add up to."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.engine.tool_calls.forms import HERMES
from forerun.engine.tool_calls.tools import tools_of
from forerun.serve.answers.calls import TextWithCalls
from forerun.serve.requests.tools import Offer

ADD, NOW = ({"type": "function", "function": {"name": name}} for name in ("add", "now"))
CALL = '<tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call>'
BROKEN = '<tool_call>{"name": "now", "arguments": {"x": oops</tool_call>'


def answer(parallel: bool = True) -> TextWithCalls:
    tools = tools_of([ADD, NOW])
    assert tools is not None
    return TextWithCalls(Offer(tools, HERMES, (), parallel))


def read(text: str, parallel: bool = True) -> tuple[TextWithCalls, list[dict[str, Any]]]:
    one = answer(parallel)
    deltas = [delta for char in text for delta in one.push(char)] + one.end()
    return one, deltas


def test_the_first_delta_of_a_call_has_its_name_and_the_others_its_arguments() -> None:
    one = answer()
    place = CALL.index('"x"')
    begun = one.push(f"So: {CALL[:place]}")
    call = begun[1]["tool_calls"][0]

    assert begun[0] == {"content": "So:"}
    assert (call["index"], call["type"], call["function"]) == (0, "function", {"name": "add", "arguments": ""})
    assert call["id"].startswith("call_")
    assert begun[2] == {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}
    assert one.push(CALL[place:]) == [{"tool_calls": [{"index": 0, "function": {"arguments": '"x": 1}'}}]}]
    assert one.end() == []
    assert one.message()["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"x": 1}'}
    assert one.message()["content"] == "So:"


def test_an_answer_of_calls_alone_has_no_content() -> None:
    one, _ = read(CALL)

    assert one.message()["content"] is None
    assert one.finish_reason("stop") == "tool_calls"
    assert one.finish_reason("length") == "length"


def test_an_answer_without_calls_is_text() -> None:
    one, deltas = read("a < b")

    assert one.message() == {"role": "assistant", "content": "a < b", "refusal": None}
    assert "".join(delta["content"] for delta in deltas) == "a < b"
    assert one.finish_reason("stop") == "stop"
    assert read("")[0].message()["content"] == ""


@pytest.mark.parametrize("before", ["", BROKEN])
def test_calls_after_the_first_whole_one_are_left_out_where_there_may_be_but_one(before: str) -> None:
    one, deltas = read(f"{before}{CALL}{CALL}", parallel=False)
    begun = [part for delta in deltas for part in delta.get("tool_calls", ()) if "id" in part]

    assert [call["function"]["name"] for call in one.message()["tool_calls"]] == ["add"]
    assert begun[-1]["function"]["name"] == "add"
    assert len(begun) == 1 + bool(before)
    assert (one.message()["content"] or "") == before


def test_a_call_that_breaks_after_it_began_is_content_in_both() -> None:
    one, deltas = read(BROKEN)

    assert one.message() == {"role": "assistant", "content": BROKEN, "refusal": None}
    assert "".join(delta.get("content", "") for delta in deltas) == BROKEN
    assert one.finish_reason("stop") == "stop"
