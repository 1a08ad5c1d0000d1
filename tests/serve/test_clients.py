"""The clients that people use: openai's and LangChain's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import openai
import pytest
from langchain_openai import ChatOpenAI

from forerun import Engine

from .running import NAME, engine, served, service

MESSAGES: Any = [{"role": "user", "content": "abcabcabc"}]
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["colour", "n"],
    "additionalProperties": False,
}


@cache
def plain() -> Engine:
    return engine().using("none")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(service({"lookup": engine(), "none": plain()}, api_key="secret")) as url:
        yield url + "/v1"


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=address, api_key="secret", max_retries=0) as made:
        yield made


def library(**options: Any) -> str:
    return engine().generate(MESSAGES, **options).text or ""


def test_a_chat_is_answered_as_by_the_library(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=NAME, messages=MESSAGES, max_completion_tokens=12, temperature=0)

    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == library(max_new_tokens=12)
    assert choice.finish_reason == "length"
    assert answer.object == "chat.completion"
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.usage.prompt_tokens) == (12, len(engine().prompt_ids(MESSAGES)))
    assert answer.usage.total_tokens == answer.usage.completion_tokens + answer.usage.prompt_tokens


def test_a_stream_s_chunks_come_in_order_and_end_with_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=NAME,
            messages=MESSAGES,
            max_tokens=12,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    *texts, last, usage = chunks
    assert texts[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in texts[1:])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in texts) == library(max_new_tokens=12)
    assert [chunk.choices[0].finish_reason for chunk in texts] == [None] * len(texts)
    assert last.choices[0].finish_reason == "length"
    assert not last.choices[0].delta.content
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.completion_tokens == 12
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_two_choices_have_texts_of_their_own_that_a_seed_repeats(client: openai.OpenAI) -> None:
    def texts(n: int) -> list[str | None]:
        answer = client.chat.completions.create(
            model=NAME, messages=MESSAGES, max_tokens=12, n=n, seed=7, temperature=1
        )
        return [choice.message.content for choice in answer.choices]

    first, second = texts(2)
    assert first != second
    assert texts(1) == [first]
    assert first == library(max_new_tokens=12, seed=7, temperature=1)


def test_log_probabilities_come_with_their_alternatives(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=NAME, messages=MESSAGES, max_tokens=5, temperature=0, logprobs=True, top_logprobs=3
    )
    expected = engine().generate(MESSAGES, max_new_tokens=5, logprobs=3).logprobs or ()

    assert answer.choices[0].logprobs is not None
    content = answer.choices[0].logprobs.content or []
    assert [token.logprob for token in content] == pytest.approx([token.logprob for token in expected], abs=1e-4)
    assert [len(token.top_logprobs) for token in content] == [3] * 5
    assert all(token.bytes is None or bytes(token.bytes).decode() == token.token for token in content)


def test_a_prediction_s_tokens_are_counted(client: openai.OpenAI) -> None:
    text = library(max_new_tokens=30, ignore_eos=True)
    answer = client.chat.completions.create(
        model=NAME,
        messages=MESSAGES,
        max_tokens=30,
        temperature=0,
        prediction={"type": "content", "content": text},
        extra_body={"method": "none", "ignore_eos": True},
    )
    stats = plain().generate(MESSAGES, max_new_tokens=30, prediction=text, ignore_eos=True).stats

    assert answer.choices[0].message.content == text
    assert answer.usage is not None
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens == stats.predicted_accepted
    assert details.rejected_prediction_tokens == stats.predicted - stats.predicted_accepted


def test_an_answer_fits_a_json_schema(client: openai.OpenAI) -> None:
    for seed in range(3):
        answer = client.chat.completions.create(
            model=NAME,
            messages=MESSAGES,
            max_tokens=60,
            seed=seed,
            response_format={"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA, "strict": True}},
        )
        found = json.loads(answer.choices[0].message.content or "")
        assert found["colour"] in ("red", "green")
        assert 0 <= found["n"] <= 9


def test_completions_stream_too(client: openai.OpenAI) -> None:
    chunks = list(client.completions.create(model=NAME, prompt="abcabc", max_tokens=9, temperature=0, stream=True))

    assert "".join(chunk.choices[0].text for chunk in chunks) == engine().generate("abcabc", max_new_tokens=9).text
    assert chunks[-1].choices[0].finish_reason == "length"


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]


def test_a_wrong_key_and_an_unknown_model_are_told_in_one_sentence(client: openai.OpenAI, address: str) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no such model; this server has 'tiny'"):
        client.chat.completions.create(model="another", messages=MESSAGES)
    with (
        openai.OpenAI(base_url=address, api_key="wrong", max_retries=0) as other,
        pytest.raises(openai.AuthenticationError, match="the API key is missing or wrong"),
    ):
        other.models.list()


def test_langchain_talks_to_it(address: str) -> None:
    model = ChatOpenAI(base_url=address, api_key="secret", model=NAME, temperature=0, max_tokens=12, max_retries=0)  # type: ignore[call-arg,arg-type]

    assert model.invoke("abcabcabc").content == library(max_new_tokens=12)
    assert "".join(str(piece.content) for piece in model.stream("abcabcabc")) == library(max_new_tokens=12)
