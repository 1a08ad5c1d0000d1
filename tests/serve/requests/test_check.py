"""Fields that are good one by one, and don't fit each other."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.serve.refusal import Refusal
from forerun.serve.requests.chat import ChatRequest
from forerun.serve.requests.check import check_chat

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}]}
SCHEMA = {"schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"return_drafts": True}, "return_drafts"),
        ({"stop": ["b", ""]}, "stop"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"response_format": {"type": "text", "json_schema": SCHEMA}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object", "json_schema": SCHEMA}}, "response_format.json_schema"),
    ],
)
def test_a_field_that_would_be_ignored_is_refused_by_its_name(given: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_chat(ChatRequest(**CHAT, **given))

    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"max_tokens": 5},
        {"max_completion_tokens": 6},
        {"max_tokens": 5, "max_completion_tokens": 5},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        {"stream": True, "stream_options": {"include_usage": True}, "return_drafts": True},
        {"logprobs": True, "top_logprobs": 2},
    ],
)
def test_fields_that_fit_each_other_are_taken(given: dict[str, Any]) -> None:
    check_chat(ChatRequest(**CHAT, **given))
