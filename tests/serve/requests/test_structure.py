"""What a text is to follow: from fields to texts, and what can't be followed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from ..running import service, within

BODY = {"prompt": "abc", "max_tokens": 60, "seed": 1}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def asked(path: str, *bodies: dict[str, Any]) -> list[httpx.Response]:
    async def work(caller: httpx.AsyncClient) -> Any:
        return await asyncio.gather(*(caller.post(path, json=body) for body in bodies))

    answers: list[httpx.Response] = within(service(), work)
    return answers


def completed(**structure: Any) -> httpx.Response:
    return asked("/v1/completions", {**BODY, "structured_outputs": structure})[0]


def text(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_a_text_follows_what_vllm_s_field_asks() -> None:
    assert set(json.loads(text(completed(json=SCHEMA)))) == {"a", "b"}
    assert text(completed(choice=["yes", "no"])) in ("yes", "no")
    assert text(completed(regex="[0-9]{3}x")).endswith("x")
    assert text(completed(grammar='start: "left" | "right"')) in ("left", "right")


@pytest.mark.parametrize(
    ("structure", "said"),
    [
        ({}, "must hold one of"),
        ({"regex": "a", "choice": ["b"]}, "must hold one of"),
        ({"regex": "[0-9"}, "regex can't be followed"),
        ({"json": {"type": "nonsense"}}, "json_schema can't be followed"),
    ],
)
def test_what_can_t_be_followed_is_refused(structure: dict[str, Any], said: str) -> None:
    answer = completed(**structure)

    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_two_structures_of_one_chat_are_refused() -> None:
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "response_format": {"type": "json_object"},
        "structured_outputs": {"regex": "a"},
    }
    (answer,) = asked("/v1/chat/completions", body)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "response_format"


def test_a_bomb_is_refused_and_others_go_on() -> None:
    bomb = {**BODY, "structured_outputs": {"regex": "((a{1000}){1000}){1000}"}}
    plain = {**BODY, "temperature": 0}
    alone = asked("/v1/completions", plain)[0]
    refused, other = asked("/v1/completions", bomb, plain)

    assert refused.status_code == 400
    assert text(other) == text(alone)
