"""A server is asked as OpenAI's API has it; what goes wrong is told in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forerun.train.data.endpoint import Endpoint, EndpointFailed, Refused, Reply

from .server import LONG, Server, serving

FIELDS = {"model": "told", "max_tokens": 20, "temperature": 0.0}
CHAT = [{"role": "user", "content": "abc"}]
SOON = (0.0, 0.0)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as running:
        yield running


def test_messages_go_to_chat_completions_and_text_to_completions(server: Server) -> None:
    endpoint = Endpoint(server.url)
    assert endpoint.ask(CHAT, FIELDS) == endpoint.ask("abc", FIELDS) == Reply("cba", None, "stop")
    assert server.asked[0] == {**FIELDS, "messages": CHAT, "return_token_ids": True}
    assert server.asked[1] == {**FIELDS, "prompt": "abc", "return_token_ids": True}


def test_ids_are_taken_where_the_server_tells_them(server: Server) -> None:
    server.tells_ids = True
    assert Endpoint(server.url).ask(CHAT, FIELDS).ids == [5, 6, 7]


def test_a_server_that_refuses_to_tell_ids_is_asked_for_them_once(server: Server) -> None:
    server.refuses_unknown = True
    endpoint = Endpoint(server.url)
    assert [endpoint.ask(CHAT, FIELDS).text for _ in range(3)] == ["cba"] * 3
    assert ["return_token_ids" in one for one in server.asked] == [True, False, False, False]


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_an_address_may_leave_out_v1(server: Server, path: str) -> None:
    assert Endpoint(server.url + path).url == f"{server.url}/v1"
    assert Endpoint(server.url + path).ask("abc", FIELDS).text == "cba"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://somewhere", "http://", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"an endpoint is an address like http://localhost:8000/v1, got "):
        Endpoint(url)


def test_the_key_is_sent_as_a_bearer_token_and_none_without_one(server: Server) -> None:
    Endpoint(server.url, "secret").ask(CHAT, FIELDS)
    Endpoint(server.url).ask(CHAT, FIELDS)
    assert server.keys == ["Bearer secret", None]


def test_the_model_is_the_one_that_is_served_or_the_one_that_is_named(server: Server) -> None:
    assert Endpoint(server.url).model() == "told"
    server.names = ("one", "two")
    assert Endpoint(server.url).model("two") == "two"
    with pytest.raises(EndpointFailed, match="serves one, two; name one"):
        Endpoint(server.url).model()
    with pytest.raises(EndpointFailed, match="serves one, two, and not 'three'"):
        Endpoint(server.url).model("three")


def test_a_busy_server_is_asked_again_and_not_for_ever(server: Server) -> None:
    server.busy = 2
    assert Endpoint(server.url, waits=SOON).ask(CHAT, FIELDS).text == "cba"
    server.busy = 3
    with pytest.raises(EndpointFailed, match=r"/v1 answered 503 \(later\)$"):
        Endpoint(server.url, waits=SOON).ask(CHAT, FIELDS)


def test_a_prompt_that_is_refused_is_told_in_one_line(server: Server) -> None:
    with pytest.raises(Refused, match=r"/v1 answered 400 \(this prompt is too long\)$"):
        Endpoint(server.url).ask(f"this is {LONG}", FIELDS)


def test_a_server_that_is_not_there_or_goes_is_an_error_that_names_it(server: Server) -> None:
    with pytest.raises(EndpointFailed, match=r"can't reach http://127\.0\.0\.1:9/v1: "):
        Endpoint("http://127.0.0.1:9", waits=SOON).ask(CHAT, FIELDS)
    server.down_after = 0
    with pytest.raises(EndpointFailed, match=f"can't reach {server.url}/v1: "):
        Endpoint(server.url, waits=SOON).ask(CHAT, FIELDS)
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"<html>", "answered with what is no JSON: b'<html>'"),
        (b"[1]", r"answered with \[1\] and no object"),
        (b"{}", "gave no completion but {}"),
        (b'{"choices": []}', "gave no completion but"),
    ],
)
def test_what_is_no_completion_is_an_error_that_shows_it(server: Server, body: bytes, sentence: str) -> None:
    server.body = body
    with pytest.raises(EndpointFailed, match=sentence):
        Endpoint(server.url).ask(CHAT, FIELDS)


@pytest.mark.parametrize("key", ["secret", None])
def test_the_key_is_in_no_message(server: Server, key: Any) -> None:
    server.busy = 5
    with pytest.raises(EndpointFailed) as failed:
        Endpoint(server.url, key, waits=()).ask(CHAT, FIELDS)
    assert "secret" not in str(failed.value)
