"""Clients that leave or read slowly, and forwards that raise: others' texts stay, and nothing is left over."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from typing import Any

import httpx
import pytest
from starlette.types import Message

from forerun import Engine
from forerun.models.packed.sequence import Sequence
from forerun.serve.app import create_app
from forerun.serve.service import Service

from .running import TOKENIZER, engine, service, within

BODY = {"prompt": "abcabcabc", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
SECRET = "a very private sentence"


def sequences() -> int:
    gc.collect()
    return sum(type(one) is Sequence for one in gc.get_objects())


async def settled(one: Service) -> None:
    """Until nothing runs or waits any more."""
    for _ in range(2000):
        if not one.engines.running and not one.engines.waiting:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("a request is left over")


def completion_scope(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    """What ASGI tells of a request for a completion, with these headers and its type."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/completions",
        "raw_path": b"/v1/completions",
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), *headers],
    }


async def leaves(app: Any, body: bytes, after: int) -> int:
    """A client that goes after so many messages; how many it got."""
    got, gone = 0, asyncio.Event()
    asked = False

    async def receive() -> Message:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal got
        if gone.is_set():
            raise OSError("the client has gone")
        got += 1
        if got >= after:
            gone.set()

    scope = completion_scope((b"host", b"localhost"))
    if after == 0:
        asyncio.get_running_loop().call_later(0.001, gone.set)
    await app(scope, receive, send)
    return got


def test_1000_clients_that_leave_at_random_moments_leave_nothing_behind() -> None:
    one = service(most_running=32, most_waiting=1000)
    chance = random.Random(1)

    async def work(caller: httpx.AsyncClient) -> str:
        app = create_app(one)
        body = httpx.Request("POST", "http://localhost", json={**BODY, "max_tokens": 6, "stream": True}).content
        whole = httpx.Request("POST", "http://localhost", json={**BODY, "max_tokens": 6}).content
        staying = asyncio.create_task(caller.post("/v1/completions", json={**BODY, "seed": 1}))
        for _ in range(10):
            await asyncio.gather(
                *(leaves(app, chance.choice((body, body, whole)), chance.randrange(6)) for _ in range(100))
            )
        await settled(one)
        return str((await staying).json()["choices"][0]["text"])

    before = sequences()
    text = within(one, work)
    engine().forget()

    assert text == engine().generate("abcabcabc", max_new_tokens=40, ignore_eos=True).text
    engine().forget()
    assert sequences() <= before


def test_a_slow_reader_holds_up_nobody() -> None:
    one = service()

    async def work(caller: httpx.AsyncClient) -> list[int]:
        app = create_app(one)
        read: list[int] = []
        blocked = asyncio.Event()

        async def slow(message: Message) -> None:
            read.append(len(read))
            await blocked.wait()

        body = httpx.Request("POST", "http://localhost", json={**BODY, "stream": True}).content
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await asyncio.Event().wait()
            raise AssertionError

        scope = completion_scope()
        reading = asyncio.create_task(app(scope, receive, slow))
        other = await caller.post("/v1/completions", json=BODY)
        assert other.status_code == 200
        await settled(one)  # the slow reader's answer is done, too, and takes no forward's time
        assert len(read) == 1
        blocked.set()
        await reading
        return read

    assert len(within(one, work)) > 10


class Poisoned:
    """Raises for forwards that hold a token, and says a secret."""

    def __init__(self, inner: Any, token: int) -> None:
        self._inner, self._token = inner, token

    def __call__(self, requests: Any) -> Any:
        if any(self._token in request.tokens for request in requests):
            raise RuntimeError(SECRET)
        return self._inner(requests)


def test_a_forward_that_raises_ends_its_own_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    poison = TOKENIZER("~").input_ids[0]
    runner = engine().runner
    bodies = [{**BODY, "prompt": f"abc{n}abcabc"} for n in range(6)]
    expected = [engine().generate(body["prompt"], max_new_tokens=40, ignore_eos=True).text for body in bodies]
    monkeypatch.setattr(runner, "execute", Poisoned(runner.execute, poison))

    async def work(caller: httpx.AsyncClient) -> Any:
        bad = {**BODY, "prompt": f"{SECRET} ~~~"}
        return await asyncio.gather(
            caller.post("/v1/completions", json=bad),
            caller.post("/v1/completions", json={**bad, "stream": True}),
            *(caller.post("/v1/completions", json=body) for body in bodies),
        )

    with caplog.at_level(logging.DEBUG):
        failed, streamed, *others = within(service(), work)

    assert failed.status_code == streamed.status_code == 500
    assert set(failed.json()["error"]) == {"message", "type", "param", "code"}
    assert failed.json()["error"]["type"] == "server_error"
    assert [other.json()["choices"][0]["text"] for other in others] == expected
    assert SECRET not in caplog.text
    assert "RuntimeError" in caplog.text


def test_a_forward_that_raises_in_the_middle_ends_a_stream_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = engine().runner
    text = engine().generate("abcabcabc", max_new_tokens=40, ignore_eos=True)
    monkeypatch.setattr(runner, "execute", Poisoned(runner.execute, text.ids[30]))

    async def work(caller: httpx.AsyncClient) -> str:
        return (await caller.post("/v1/completions", json={**BODY, "stream": True})).text

    lines = [line for line in within(service(), work).splitlines() if line]

    if text.ids[30] in text.ids[:30]:
        pytest.skip("the token comes earlier, too")
    assert '"error"' in lines[-2]
    assert lines[-1] == "data: [DONE]"


def test_nothing_of_a_request_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work(caller: httpx.AsyncClient) -> None:
        await caller.post("/v1/completions", json={**BODY, "prompt": SECRET})
        await caller.post("/v1/completions", json={**BODY, "prompt": SECRET, SECRET: 1})
        await caller.post("/v1/completions", json={**BODY, "prompt": [SECRET, 1]})
        await caller.post("/v1/chat/completions", json={"messages": [{"role": SECRET, "content": SECRET}]})
        await caller.get(f"/{SECRET}?{SECRET}")
        await caller.post("/v1/completions", content=SECRET, headers={"content-type": "application/json"})

    with caplog.at_level(logging.INFO, logger="forerun"):
        within(service(), work)

    assert SECRET not in caplog.text
    assert "/v1/completions 200" in caplog.text
    assert "/v1/completions 400" in caplog.text


def test_the_log_holds_requests_if_it_is_asked_to(caplog: pytest.LogCaptureFixture) -> None:
    async def work(caller: httpx.AsyncClient) -> None:
        await caller.post("/v1/completions", json={**BODY, "prompt": SECRET})

    with caplog.at_level(logging.INFO, logger="forerun"):
        within(service(log_prompts=True), work)

    assert SECRET in caplog.text


def test_too_many_requests_are_told_to_come_again() -> None:
    one = service(most_running=1, most_waiting=1)

    async def work(caller: httpx.AsyncClient) -> list[httpx.Response]:
        return await asyncio.gather(*(caller.post("/v1/completions", json=BODY) for _ in range(8)))

    answers = within(one, work)

    refused = [answer for answer in answers if answer.status_code == 429]
    assert 1 <= len(refused) <= 6
    assert {answer.status_code for answer in answers} == {200, 429}
    assert refused[0].headers["retry-after"] == "1"
    assert refused[0].json()["error"]["code"] == "queue_full"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"prompt": "a" * 600}, 400, "prompt"),
        ({"prompt": "a", "max_tokens": 600}, 400, "max_tokens"),
        ({"prompt": ["a"] * 17}, 400, "n"),
        ({"prompt": "a", "n": 17}, 400, "n"),
        ({"prompt": "a" * 5000}, 413, None),
    ],
)
def test_what_is_too_long_is_refused_before_any_work(
    body: dict[str, Any], status: int, param: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one: Engine = engine()
    monkeypatch.setattr(one.runner, "execute", lambda requests: pytest.fail("a forward ran"))

    async def work(caller: httpx.AsyncClient) -> httpx.Response:
        return await caller.post("/v1/completions", json=body)

    answer = within(service(most_bytes=4000), work)

    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


def test_stopping_ends_what_is_in_flight_with_an_error() -> None:
    one = service()

    async def work(caller: httpx.AsyncClient) -> tuple[httpx.Response, httpx.Response, httpx.Response]:
        running = [
            asyncio.create_task(caller.post("/v1/completions", json={**BODY, "max_tokens": 480, "stream": stream}))
            for stream in (True, False)
        ]
        while one.engines.running < 2:
            await asyncio.sleep(0.001)
        await one.close(0.0)
        late = await caller.post("/v1/completions", json=BODY)
        streamed, whole = await asyncio.gather(*running)
        return streamed, whole, late

    streamed, whole, late = within(one, work)

    assert whole.status_code == late.status_code == 503
    assert late.json()["error"]["code"] == "shutting_down"
    assert streamed.status_code == 503 or streamed.text.rstrip().endswith("data: [DONE]")


def test_stopping_lets_answers_end_within_the_time_given() -> None:
    one = service()

    async def work(caller: httpx.AsyncClient) -> httpx.Response:
        running = asyncio.create_task(caller.post("/v1/completions", json=BODY))
        while not one.engines.running:
            await asyncio.sleep(0.001)
        await one.close(60.0)
        return await running

    assert within(one, work).json()["usage"]["completion_tokens"] == 40
