"""Bodies: what is wrong is told by the field's name, whatever is sent."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forerun.serve.refusal import Refusal
from forerun.serve.requests.chat import ChatRequest
from forerun.serve.requests.completion import CompletionRequest
from forerun.serve.requests.fields import GenerationFields
from forerun.serve.requests.read import parsed

from ..running import service, within

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
FIELDS = [*ChatRequest.model_fields, "prompt", "logprobs", "unknown"]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["text", "user", "content"]),
)
values = st.one_of(
    leaves,
    st.lists(leaves, max_size=2),
    st.dictionaries(st.sampled_from(["role", "content", "type", "json", "text", "a"]), leaves, max_size=2),
)
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=5)
fuzzed = settings(max_examples=2500, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def check(kind: type[GenerationFields], body: bytes) -> None:
    """Raises whatever is no refusal."""
    refusal = None
    try:
        assert isinstance(parsed(kind, body), kind)
    except Refusal as caught:
        refusal = caught
    if refusal is not None:
        assert refusal.status == 400
        assert set(json.loads(json.dumps(refusal.body))["error"]) == {"message", "type", "param", "code"}


@fuzzed
@given(bodies)
def test_2500_bodies_of_any_values_are_taken_or_refused(body: dict[str, Any]) -> None:
    check(ChatRequest, json.dumps({**CHAT, **body}).encode())
    check(CompletionRequest, json.dumps({"prompt": "a", **body}).encode())


@fuzzed
@given(st.one_of(st.binary(max_size=60), st.binary(max_size=20).map(lambda some: b'{"prompt": "a' + some + b'"}')))
def test_2500_bodies_of_any_bytes_are_taken_or_refused(body: bytes) -> None:
    check(CompletionRequest, body)
    check(ChatRequest, body)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"echo": True}, "echo"),
        ({"best_of": 3}, "best_of"),
        ({"unknown": 1}, "unknown"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stream_options": {"include": 1}}, "stream_options.include"),
        ({"prediction": {"type": "content"}}, "prediction.content"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt": None}, "prompt"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_a_field_that_is_no_good_is_named(given: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        parsed(CompletionRequest, json.dumps({"prompt": "a", **given}).encode())

    assert caught.value.param == param
    assert param in caught.value.message


@pytest.mark.parametrize(
    "given",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"functions": []},
        {"response_format": {"type": "xml"}},
        {"audio": {}},
    ],
)
def test_a_chat_that_can_t_be_answered_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as caught:
        parsed(ChatRequest, json.dumps({**CHAT, **given}).encode())

    assert caught.value.status == 400
    assert caught.value.param is not None


def test_a_message_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(Refusal) as caught:
        parsed(CompletionRequest, b'{"prompt": "a", "temperature": "a very private sentence"}')

    assert "private" not in caught.value.message


@pytest.mark.parametrize("body", [b"{" * 100_000, b"[" * 100_000, b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b""])
def test_nonsense_is_no_json(body: bytes) -> None:
    with pytest.raises(Refusal, match="no JSON"):
        parsed(CompletionRequest, body)


def test_a_body_of_another_kind_isn_t_read() -> None:
    async def work(caller: httpx.AsyncClient) -> list[httpx.Response]:
        return [
            await caller.post("/v1/completions", content=b'{"prompt": "a"}', headers=headers)
            for headers in ({"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"})
        ]

    assert [answer.status_code for answer in within(service(), work)] == [415, 415]


def test_a_body_without_a_length_is_read_up_to_the_limit() -> None:
    async def endless() -> Any:
        for _ in range(1000):
            yield b"a" * 100

    async def work(caller: httpx.AsyncClient) -> httpx.Response:
        return await caller.post("/v1/completions", content=endless(), headers={"content-type": "application/json"})

    assert within(service(most_bytes=1000), work).status_code == 413
