"""forerun train answers --endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forerun.testing import tiny_tokenizer

from ...train.data.server import Server, serving

Call = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as running:
        yield running


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A tokenizer alone: the model runs elsewhere."""
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": f"say {n}"}) + "\n" for n in range(6)))
    return tmp_path


def answers(forerun: Call, directory: Path, server: str, *given: object) -> Any:
    asked = ("train", "answers", directory / "model", directory / "p.jsonl", "-o", directory / "a.jsonl")
    return forerun(*asked, "--endpoint", server, *given)


def test_a_server_answers_and_only_the_tokenizer_is_read(
    forerun: Call, directory: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    ran = answers(forerun, directory, server.url, "--max-new-tokens", 5, "--json")
    assert ran.status == 0, ran.err
    told = json.loads(ran.out)
    assert (told["answers"], told["new_answers"]) == (6, 6)
    assert f"asking told at {server.url}/v1, up to 32 at once" in ran.err
    assert set(server.keys) == {"Bearer secret"}
    assert "secret" not in ran.out + ran.err + (directory / "a.jsonl").read_text()
    again = answers(forerun, directory, server.url, "--max-new-tokens", 5)
    assert "6 prompts, 6 of them answered before" in again.err
    assert len(server.asked) == 6


def test_the_key_may_be_in_another_variable(
    forerun: Call, directory: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_KEY", "other")
    assert answers(forerun, directory, server.url, "--key-variable", "FLEET_KEY").status == 0
    assert set(server.keys) == {"Bearer other"}


def test_a_server_that_goes_is_one_sentence_and_what_it_told_is_kept(
    forerun: Call, directory: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forerun.train.data.endpoint.WAITS", ())
    monkeypatch.setattr("forerun.train.data.endpoint.Endpoint.__init__.__defaults__", (None, ()))
    server.down_after = 4
    ran = answers(forerun, directory, server.url, "--in-flight", 1)
    assert (ran.status, ran.out) == (2, "")
    assert f"can't reach {server.url}/v1" in ran.err
    assert "4 of 6 answers are in" in " ".join(ran.err.split())
    assert "Traceback" not in ran.err
    assert len((directory / "a.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--states", "s", "--layers", "2"), "a server tells no states: --states and --endpoint don't go together"),
        (("--served-model", "other"), "serves told, and not 'other'"),
        (("--key-variable", "NOT_THERE"), "the environment has no variable NOT_THERE, which --key-variable names"),
        (("--in-flight", 0), "--in-flight"),
    ],
)
def test_what_can_not_be_had_of_a_server_is_refused(
    forerun: Call, directory: Path, server: Server, given: tuple[object, ...], sentence: str
) -> None:
    ran = answers(forerun, directory, server.url, *given)
    assert ran.status == 2
    assert sentence in " ".join(ran.err.split())
    assert server.asked == []


def test_an_address_that_is_none_is_refused(forerun: Call, directory: Path) -> None:
    assert "an endpoint is an address like http://localhost:8000/v1, got 'x'" in answers(forerun, directory, "x").err


def test_a_refused_prompt_is_left_out_on_demand(forerun: Call, directory: Path, server: Server) -> None:
    with (directory / "p.jsonl").open("a") as file:
        file.write('{"prompt": "this is too long"}\n')
    ran = answers(forerun, directory, server.url, "--skip-bad", "--json")
    assert json.loads(ran.out)["skipped"]["lines"] == 1
    assert json.loads(ran.out)["answers"] == 6
