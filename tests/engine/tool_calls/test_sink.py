"""The parts of calls become events: the name first, pieces of one kind together."""

from __future__ import annotations

import pytest

from forerun.engine.tool_calls.characters import Malformed
from forerun.engine.tool_calls.events import Arguments, CallBegun, CallBroken, CallEnded, Text
from forerun.engine.tool_calls.sink import CallSink


def sink(*names: str) -> CallSink:
    return CallSink(names or None, lambda: "id")


def test_a_call_begins_where_name_and_arguments_are_there() -> None:
    one = sink()
    one.open_arguments()
    one.argument("{")
    assert one.take() == []
    one.name("add")
    one.argument("}")
    assert one.take() == [CallBegun(0, "id", "add"), Arguments(0, "{}")]
    one.end()
    assert one.take() == [CallEnded(0)]
    assert one.whole == 1


def test_text_comes_in_one_piece() -> None:
    one = sink()
    for text in ("a", "", "b"):
        one.say(text)

    assert one.take() == [Text("ab")]
    assert one.take() == []


def test_what_had_begun_and_is_given_up_is_void() -> None:
    one = sink()
    one.name("add")
    one.give_up()
    assert one.take() == []
    one.name("add")
    one.open_arguments()
    one.give_up()
    assert one.take() == [CallBegun(0, "id", "add"), CallBroken(0)]
    one.name("add")
    one.open_arguments()
    assert one.take() == [CallBegun(1, "id", "add")]


def test_after_a_call_is_until_text_comes() -> None:
    one = sink()
    assert not one.after_call
    one.name("add")
    one.open_arguments()
    one.end()
    assert one.after_call
    one.say("text")
    assert not one.after_call


def test_parts_that_can_not_be_are_malformed() -> None:
    with pytest.raises(Malformed):
        sink().name("")
    with pytest.raises(Malformed):
        sink("add").name("other")
    with pytest.raises(Malformed):
        sink().end()
    one = sink()
    one.name("add")
    one.open_arguments()
    for again in (lambda: one.name("add"), one.open_arguments):
        with pytest.raises(Malformed):
            again()
