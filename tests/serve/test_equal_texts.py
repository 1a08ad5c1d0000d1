"""A text that is served, whole or in pieces, in any company, is the library's."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import httpx
import pytest

from .mixed import by_library, random_request
from .running import engine, service, within

REQUESTS, WHOLE = 200, 30


async def streamed(caller: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices that the chunks make together."""
    made: dict[int, dict[str, Any]] = {}
    async with caller.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line.removeprefix("data: ") async for line in response.aiter_lines() if line]
    assert lines[-1] == "[DONE]"
    for line in lines[:-1]:
        (choice,) = json.loads(line)["choices"]
        so_far = made.setdefault(choice["index"], {"text": "", "logprobs": None, "finish_reason": None})
        assert so_far["finish_reason"] is None, "nothing comes after the end"
        so_far["text"] += choice["text"]
        so_far["finish_reason"] = choice["finish_reason"]
        if choice["logprobs"] is not None:
            joined = so_far["logprobs"] or {name: [] for name in choice["logprobs"]}
            so_far["logprobs"] = {name: joined[name] + values for name, values in choice["logprobs"].items()}
    return [made[index] for index in sorted(made)]


async def whole(caller: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await caller.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return list(response.json()["choices"])


def test_200_mixed_requests_in_flight_together_get_the_library_s_texts() -> None:
    # no draw of these is nearer than 3e-6 to where the law's next token begins: in company float32 rounds otherwise
    chance = random.Random(3)
    bodies = [random_request(chance) for _ in range(REQUESTS)]
    one = service(most_waiting=2 * 2 * REQUESTS, most_running=48, remember=False)

    async def ask(caller: httpx.AsyncClient) -> Any:
        return await asyncio.gather(
            *(streamed(caller, body) for body in bodies), *(whole(caller, body) for body in bodies[:WHOLE])
        )

    answers = within(one, ask)

    for body, choices in zip([*bodies, *bodies[:WHOLE]], answers, strict=True):
        expected = by_library(engine(), body)
        assert [choice["text"] for choice in choices] == [result.text for result in expected], body
        for choice, result in zip(choices, expected, strict=True):
            assert choice["finish_reason"] == result.finish_reason
            assert (choice["logprobs"] is None) == (result.logprobs is None)
            if result.logprobs is not None:
                assert choice["logprobs"]["token_logprobs"] == pytest.approx(
                    [token.logprob for token in result.logprobs], abs=1e-4
                )


def test_drafts_change_no_text_of_a_request() -> None:
    body = {"prompt": "abcabcabcabc", "max_tokens": 30, "temperature": 0.8, "seed": 5}

    async def ask(caller: httpx.AsyncClient) -> Any:
        return [(await caller.post("/v1/completions", json={**body, "speculate": on})).json() for on in (True, False)]

    drafted, plain = within(service(), ask)

    assert drafted["choices"][0]["text"] == plain["choices"][0]["text"]
    assert drafted["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
    assert plain["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0
