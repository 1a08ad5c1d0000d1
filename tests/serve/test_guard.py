"""Who may call."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .running import service, within

KEY = "secret"


def asked(settings: dict[str, Any], path: str = "/v1/models", **headers: str | bytes) -> httpx.Response:
    async def work(caller: httpx.AsyncClient) -> httpx.Response:
        sent = [
            (name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in headers.items()
        ]
        return await caller.get(path, headers=sent)

    answer: httpx.Response = within(service(**settings), work)
    return answer


@pytest.mark.parametrize("given", [None, "Bearer wrong", KEY, b"Bearer \xc3\xa9"])
def test_without_the_key_nothing_is_told(given: str | bytes | None) -> None:
    answer = asked({"api_key": KEY}, **({} if given is None else {"authorization": given}))

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"


def test_with_the_key_all_is_told_and_health_always() -> None:
    assert asked({"api_key": KEY}, authorization=f"Bearer {KEY}").status_code == 200
    assert asked({"api_key": KEY}, "/health").status_code == 200
    for path in ("/metrics", "/version", "/v1/models/tiny"):
        assert asked({"api_key": KEY}, path).status_code == 401


def test_a_local_server_answers_to_its_own_names_alone() -> None:
    hosts = {"hosts": ("localhost", "127.0.0.1", "::1")}

    assert asked(hosts, host="localhost:8000").status_code == 200
    assert asked(hosts, host="[::1]:8000").status_code == 200
    assert asked(hosts, host="evil.example").status_code == 403


def test_other_origins_are_let_in_only_if_named() -> None:
    assert "access-control-allow-origin" not in asked({}, origin="https://a.example").headers
    allowed = asked({"cors": ("https://a.example",)}, origin="https://a.example")
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    other = asked({"cors": ("https://a.example",)}, origin="https://b.example")
    assert "access-control-allow-origin" not in other.headers


def test_an_unknown_path_and_method_have_openai_s_form() -> None:
    for path in ("/nope", "/v1/completions"):
        answer = asked({}, path)
        assert answer.status_code in (404, 405)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_no_file_is_reached_by_a_model_s_name() -> None:
    assert asked({}, "/v1/models/..%2f..%2fetc%2fpasswd").status_code == 404
