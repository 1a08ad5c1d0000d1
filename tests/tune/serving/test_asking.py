from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forerun.tune.serving.asking import Address, EngineFailed, alive
from forerun.tune.serving.process import Server, port_for

from .stand_in import stand_in


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = port_for(0)
    program = stand_in(tmp_path_factory.mktemp("server"))
    with closing(Server("it", [str(program), "--port", str(port), "--spec-type", "x"], {}, port)) as opened:
        yield opened


def test_prompts_are_answered_and_drafts_counted(drafting: Server) -> None:
    found = Address(f"{drafting.url}/v1/", {}).answer(["one", "two", "three"], 2, 5)

    assert (found.sample.decoded, found.sample.drafted, found.sample.accepted) == (15, 12, 9)
    assert found.sample.seconds > 0
    assert len(set(found.texts)) == 3


def test_messages_and_texts_are_asked_for_by_their_own_routes(drafting: Server) -> None:
    address = Address(drafting.url, {})
    messages = [{"role": "user", "content": "one"}]

    assert address.answer([messages], 1, 5).texts == address.answer([messages], 1, 5).texts
    assert address.answer([messages], 1, 5).texts != address.answer(["one"], 1, 5).texts


def test_nobody_there_is_a_sentence() -> None:
    url = f"http://127.0.0.1:{port_for(0)}"

    assert not alive(url)
    with pytest.raises(EngineFailed, match=f"{url} can't be reached: .*refused"):
        Address(url, {})


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="an endpoint is an address like http://localhost:8000"):
        Address(url, {})


def test_a_refusal_says_what_the_server_said(tmp_path: Path) -> None:
    port = port_for(0)
    with closing(Server("it", [str(stand_in(tmp_path)), "--port", str(port), "refusing"], {}, port)) as opened:
        address = Address(opened.url, {})
        with pytest.raises(EngineFailed, match=r"answered POST /v1/completions with 400: .*no chat template"):
            address.answer(["one"], 1, 5)
