"""Clients that ask a server at once, and what came of it: tokens a second, time to the first token, gaps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from statistics import quantiles
from time import perf_counter
from typing import Any

import httpx

STALLED, STALLED_TOKENS = 4, 256  # clients that run while a long prompt comes, and the length of their answers


@dataclass(frozen=True)
class Subject:
    """A server as it is asked. fields: what every request says beside the question."""

    name: str
    address: str
    model: str
    fields: dict[str, Any]
    new: int
    api_key: str = ""

    def client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        limits = httpx.Limits(max_keepalive_connections=0)  # llama-server closes connections when it likes
        return httpx.AsyncClient(base_url=self.address, headers=headers, timeout=600, limits=limits)

    def body(self, question: str, new: int) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": new,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.fields,
        }


async def ask(client: httpx.AsyncClient, body: dict[str, Any], begins: asyncio.Event | None = None) -> dict[str, Any]:
    """One answer: its tokens, text, and when each of its pieces came, in seconds from the request.

    begins: set when its first piece comes.
    """
    begun, times, text, tokens = perf_counter(), [], [], 0
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise SystemExit(f"{response.status_code}: {(await response.aread()).decode()[:300]}")
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if usage := chunk.get("usage"):
                tokens = usage["completion_tokens"]
            for choice in chunk["choices"]:
                if content := choice["delta"].get("content"):
                    times.append(perf_counter() - begun)
                    text.append(content)
                    if begins is not None:
                        begins.set()
    return {"tokens": tokens, "times": times, "text": "".join(text), "seconds": perf_counter() - begun}


async def loaded(subject: Subject, clients: int, questions: Sequence[str]) -> dict[str, Any]:
    """The questions, asked by so many clients at once, each of which asks its next when it has its answer."""
    left, answers = list(enumerate(questions)), {}
    async with subject.client() as client:

        async def one() -> None:
            while left:
                number, question = left.pop(0)
                answers[number] = await ask(client, subject.body(question, subject.new))

        begun = perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        seconds = perf_counter() - begun
    return summed([answers[number] for number in sorted(answers)], seconds)


async def stalled(subject: Subject, questions: Sequence[str], words: int) -> dict[str, float]:
    """The longest gaps of running answers, without and with a long prompt that comes in the middle.

    outlasted: how many of them ran until it was answered, all of which the gap with it is about.
    """
    found: dict[str, float] = {}
    bodies = [subject.body(question, STALLED_TOKENS) for question in questions[:STALLED]]
    async with subject.client() as client:
        for name in ("without", "with"):
            begins = [asyncio.Event() for _ in bodies]
            running = [asyncio.create_task(ask(client, *one)) for one in zip(bodies, begins, strict=True)]
            await asyncio.gather(*(one.wait() for one in begins))
            if name == "with":
                # no prefix that was read before: it begins with the time
                long = f"{perf_counter()} {' '.join(['word'] * words)}"
                found["long_prompt_seconds"] = (await ask(client, subject.body(long, 1)))["seconds"]
                found["outlasted"] = sum(not one.done() for one in running)
            found[name] = max(max(gaps(answer)) for answer in await asyncio.gather(*running))
    return found


def gaps(answer: dict[str, Any]) -> list[float]:
    times = answer["times"]
    return [later - earlier for earlier, later in pairwise(times)] or [0.0]


def summed(answers: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    first = [answer["times"][0] for answer in answers if answer["times"]]
    between = [gap for answer in answers for gap in gaps(answer)]
    return {
        "tokens": sum(answer["tokens"] for answer in answers),
        "seconds": seconds,
        "tokens_per_second": sum(answer["tokens"] for answer in answers) / seconds,
        "first_token": percentiles(first),
        "gap": {**percentiles(between), "longest": max(between)},
        "texts": [sha256(answer["text"].encode()).hexdigest()[:12] for answer in answers],
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    cut = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    return {"p50": cut[49], "p99": cut[98]}
