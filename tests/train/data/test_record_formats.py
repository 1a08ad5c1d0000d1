"""The forms of training data: what each becomes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.errors import UnsupportedOption
from forerun.train.data.record_formats import KNOWN, Chat, Completion, Ids, Text, record_of, text_of

ASKED, SAID = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
SYSTEM = {"role": "system", "content": "s"}
ANSWERED = Chat((ASKED, SAID))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"messages": [ASKED, SAID]}, ANSWERED),
        ({"messages": [ASKED, {**SAID, "content": [{"type": "text", "text": "b"}]}]}, ANSWERED),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, ANSWERED),
        ({"conversations": [ASKED, SAID]}, ANSWERED),
        (
            {"system": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
            Chat((SYSTEM, ASKED, SAID)),
        ),
        ({"instruction": "a", "output": "b"}, ANSWERED),
        ({"instruction": "a", "input": "", "output": "b"}, ANSWERED),
        ({"instruction": "a", "input": "c", "output": "b"}, Chat(({**ASKED, "content": "a\n\nc"}, SAID))),
        (
            {"instruction": "a", "output": "b", "system": "s", "history": [["a", "b"]]},
            Chat((SYSTEM, ASKED, SAID, ASKED, SAID)),
        ),
        ({"prompt": "a", "completion": "b"}, Completion("a", "b")),
        ({"prompt": [ASKED], "completion": [SAID]}, ANSWERED),
        ({"prompt": "a", "answer": "b"}, ANSWERED),
        ({"text": "a"}, Text("a")),
        ({"prompt_ids": [1], "answer_ids": [2, 3]}, Ids((1,), (2, 3))),
    ],
)
def test_each_form_is_told_by_its_keys(entry: dict[str, Any], expected: Any) -> None:
    assert record_of(entry, chat=True) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"prompt_ids": [1], "answer_ids": [2], "prompt": "a", "answer": "b", "text": "c"}, Ids((1,), (2,))),
        ({"prompt": "x", "messages": [ASKED, SAID], "text": "c"}, ANSWERED),
        ({"instruction": "a", "input": "", "output": "b", "text": "### Instruction: a"}, ANSWERED),
    ],
)
def test_the_form_that_says_most_is_taken_of_several(entry: dict[str, Any], expected: Any) -> None:
    assert record_of(entry, chat=True) == expected


def test_an_instruction_without_a_template_is_written_as_alpaca_writes_it() -> None:
    plain = record_of({"instruction": "a", "output": "b"}, chat=False)
    paired = record_of({"instruction": "a", "input": "c", "output": "b"}, chat=False)

    assert isinstance(plain, Completion)
    assert isinstance(paired, Completion)
    assert plain.prompt.endswith("request.\n\n### Instruction:\na\n\n### Response:\n")
    assert paired.prompt.endswith("### Instruction:\na\n\n### Input:\nc\n\n### Response:\n")
    assert "paired with an input" in paired.prompt
    assert "paired" not in plain.prompt
    assert record_of({"prompt": "a", "answer": "b"}, chat=False) == Completion("a", "b")


def test_what_else_a_message_says_is_kept_for_the_template() -> None:
    thought = {**SAID, "reasoning_content": "because"}
    assert record_of({"messages": [ASKED, thought]}, chat=True) == Chat((ASKED, thought))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({}, "got an empty object"),
        ({"chosen": "a", "rejected": "b"}, "got 'chosen', 'rejected'"),
        ({"question": "a", "answer": "b"}, "a line has .*ShareGPT.*Alpaca.*TRL"),
        ({"messages": []}, '"messages" must be a list of objects .* not empty'),
        ({"conversations": []}, '"conversations" must be a list of objects .* not empty'),
        ({"messages": "a"}, "must be a list"),
        ({"messages": ["a"]}, "must be a list of objects"),
        ({"messages": [ASKED, {"role": "assistant"}]}, "message 2, of role 'assistant', has no content"),
        (
            {"messages": [ASKED, {"role": "assistant", "content": None, "tool_calls": [{}]}, SAID]},
            "message 2, .* has no content: it calls a tool",
        ),
        ({"messages": [{"content": "a"}, SAID]}, "message 1 has no role; known: system, developer, user"),
        ({"messages": [{"role": "narrator", "content": "a"}, SAID]}, "message 1 has the role 'narrator'"),
        ({"messages": [{"role": 3, "content": "a"}, SAID]}, "message 1 has the role 3"),
        ({"messages": [{"role": "user", "content": 3}, SAID]}, "message 1 must hold text as its content, got int"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}, SAID]},
            "message 1 must hold text as its content, got list",
        ),
        ({"messages": [ASKED]}, "the last message must be the assistant's"),
        ({"messages": [SAID]}, "a message before it is needed"),
        ({"messages": [ASKED, {**SAID, "content": " \n"}]}, "the last message, which is learnt, must hold text"),
        ({"conversations": [{"from": "alien", "value": "a"}]}, "the role 'alien'; known: .*human, gpt"),
        ({"conversations": [{"from": "human"}, {"from": "gpt", "value": "b"}]}, "message 1, .* has no content"),
        ({"messages": [ASKED, SAID], "tools": [{}]}, '"tools" can\'t be learnt from'),
        ({"instruction": "a", "output": None}, '"output" must hold text that is not empty, got NoneType'),
        ({"instruction": "a", "input": 3, "output": "b"}, '"input" must hold text, got int'),
        ({"instruction": "a", "output": "b", "history": ["a"]}, '"history" must be a list of pairs'),
        ({"instruction": "a", "output": "b", "history": [["a", 3]]}, '"history" must hold pairs of texts'),
        ({"prompt": "a", "completion": [SAID]}, "must both be text, or both lists of messages"),
        ({"prompt": "a", "completion": ""}, '"completion" must hold text that is not empty'),
        ({"prompt_ids": [True], "answer_ids": [1]}, "whole numbers from 0 on"),
        ({"prompt_ids": [1.0], "answer_ids": [1]}, "whole numbers from 0 on"),
        ({"text": ["a"]}, '"text" must hold text that is not empty, got list'),
    ],
)
def test_what_is_none_of_the_forms_is_refused_with_the_reason(entry: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        record_of(entry, chat=True)


def test_a_chat_without_a_template_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="no chat template"):
        record_of({"messages": [ASKED, SAID]}, chat=False)
    with pytest.raises(ValueError, match='"system" and "history" need a chat template'):
        record_of({"instruction": "a", "output": "b", "system": "s"}, chat=False)


def test_a_refusal_lists_every_form() -> None:
    with pytest.raises(ValueError, match="a line has") as refused:
        record_of({"body": "a"}, chat=True)
    assert all(form in str(refused.value) for form in KNOWN)


def test_a_text_may_be_empty_only_where_it_is_allowed() -> None:
    assert text_of({"a": ""}, "a", empty=True) == ""
    with pytest.raises(ValueError, match='"a" must hold text that is not empty'):
        text_of({"a": ""}, "a")
