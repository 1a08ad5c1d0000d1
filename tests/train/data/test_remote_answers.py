"""A server's answers stand in the file as the own engine's do; runs go on where they ended, each prompt is answered once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forerun.jsonl import Skipped
from forerun.testing import tiny_tokenizer
from forerun.train.data.answers import AnswerOptions
from forerun.train.data.endpoint import Endpoint, EndpointFailed, Refused
from forerun.train.data.examples import read_examples
from forerun.train.data.remote_answers import answer_remotely

from .server import LONG, Server, serving
from .test_answers import lines, written

OPTIONS = AnswerOptions(max_new_tokens=8)
PROMPTS = tuple(f"prompt {number} of many" for number in range(40))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


def run(server: Server, tokenizer: Any, prompts: Path, path: Path, **given: Any) -> list[tuple[int, int, int]]:
    options = given.pop("options", OPTIONS)
    endpoint = Endpoint(server.url, waits=())
    return list(answer_remotely(endpoint, "told", tokenizer, prompts, path, options, **given))


def test_answers_have_the_form_of_the_own_engines(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    told = run(server, tokenizer, written(tmp_path / "p.jsonl", PROMPTS), tmp_path / "a.jsonl")
    assert [done for done, _, _ in told] == list(range(41))
    found = lines(tmp_path / "a.jsonl")
    assert len(found) == 40
    for one in found.values():
        prompt = tokenizer.decode(one["prompt_ids"])
        text = next(text for text in PROMPTS if text in prompt)
        assert one["answer"] == text[::-1][:8]
        assert tokenizer.decode(one["answer_ids"], skip_special_tokens=True) == one["answer"]
        assert one["finish_reason"] == "stop"
        assert one["answer_ids"][-1] == tokenizer.eos_token_id
    assert told[-1][2] == sum(len(one["answer_ids"]) for one in found.values())
    assert len(read_examples(tmp_path / "a.jsonl", None)) == 40


def test_an_answer_that_was_cut_off_ends_without_an_end(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    server.end = "length"
    run(server, tokenizer, written(tmp_path / "p.jsonl", PROMPTS[:1]), tmp_path / "a.jsonl")
    (one,) = lines(tmp_path / "a.jsonl").values()
    assert one["answer_ids"] == tokenizer.encode(one["answer"], add_special_tokens=False)


def test_the_servers_own_ids_are_kept(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    server.tells_ids = True
    run(server, tokenizer, written(tmp_path / "p.jsonl", PROMPTS[:3]), tmp_path / "a.jsonl")
    assert [one["answer_ids"] for one in lines(tmp_path / "a.jsonl").values()] == [[5, 6, 7]] * 3


def test_many_requests_are_in_flight_and_no_more_than_were_allowed(
    server: Server, tokenizer: Any, tmp_path: Path
) -> None:
    server.seconds = 0.02
    run(server, tokenizer, written(tmp_path / "p.jsonl", PROMPTS), tmp_path / "a.jsonl", in_flight=10)
    assert 5 <= server.most_at_once <= 10


def test_a_server_that_is_gone_leaves_what_it_told_and_the_next_run_asks_the_rest_once(
    server: Server, tokenizer: Any, tmp_path: Path
) -> None:
    prompts, path = written(tmp_path / "p.jsonl", PROMPTS), tmp_path / "a.jsonl"
    server.down_after = 15
    with pytest.raises(
        EndpointFailed, match=r"can't reach .*; 15 of 40 answers are in .*a.jsonl, and the same command goes"
    ):
        run(server, tokenizer, prompts, path, in_flight=4)
    assert len(lines(path)) == 15
    assert len(server.asked) < 25
    server.down_after = None
    before = server.answered
    assert run(server, tokenizer, prompts, path)[-1][:2] == (40, 40)
    assert server.answered - before == 25
    assert len(lines(path)) == 40


def test_a_run_that_is_stopped_goes_on(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    prompts, path = written(tmp_path / "p.jsonl", PROMPTS), tmp_path / "a.jsonl"
    running = answer_remotely(Endpoint(server.url), "told", tokenizer, prompts, path, OPTIONS, in_flight=2)
    while next(running)[0] < 7:
        pass
    running.close()
    assert len(lines(path)) == 7
    assert run(server, tokenizer, prompts, path)[-1][0] == 40
    assert len(lines(path)) == 40


def test_each_prompt_has_a_seed_of_its_own_and_keeps_it(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    prompts, warm = written(tmp_path / "p.jsonl", PROMPTS), AnswerOptions(max_new_tokens=8, temperature=0.7, top_p=0.9)
    run(server, tokenizer, prompts, tmp_path / "a.jsonl", options=warm)
    first = {json.dumps(one["messages" if "messages" in one else "prompt"]): one["seed"] for one in server.asked}
    server.asked.clear()
    run(server, tokenizer, prompts, tmp_path / "b.jsonl", options=warm)
    assert {
        json.dumps(one["messages" if "messages" in one else "prompt"]): one["seed"] for one in server.asked
    } == first
    assert len(set(first.values())) == 40
    assert {(one["temperature"], one["top_p"], one["model"]) for one in server.asked} == {(0.7, 0.9, "told")}


def test_a_prompt_that_is_refused_ends_the_run_or_is_left_out(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    prompts, path = written(tmp_path / "p.jsonl", [*PROMPTS[:5], LONG, *PROMPTS[5:]]), tmp_path / "a.jsonl"
    with pytest.raises(Refused, match=r"400 \(this prompt is too long\); \d+ of 41 answers are in"):
        run(server, tokenizer, prompts, path, in_flight=1)
    assert len(lines(path)) in (5, 6)  # the next one may have been asked already
    skipped = Skipped()
    assert run(server, tokenizer, prompts, path, skipped=skipped)[-1][:2] == (40, 41)
    assert (skipped.count, "too long" in skipped.first) == (1, True)


def test_an_answer_that_ended_in_no_known_way_is_refused(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    server.end = "content_filter"
    with pytest.raises(Refused, match=r"p.jsonl, line 1: the server ended the answer with 'content_filter'"):
        run(server, tokenizer, written(tmp_path / "p.jsonl", PROMPTS[:1]), tmp_path / "a.jsonl")


@pytest.mark.parametrize("other", [{"served": "another"}, {"options": AnswerOptions(max_new_tokens=9)}], ids=str)
def test_another_models_file_is_refused(server: Server, tokenizer: Any, tmp_path: Path, other: dict[str, Any]) -> None:
    prompts, path = written(tmp_path / "p.jsonl", PROMPTS[:2]), tmp_path / "a.jsonl"
    run(server, tokenizer, prompts, path)
    given = {"served": "told", "options": OPTIONS, **other}
    with pytest.raises(ValueError, match="was made by another model or with other options"):
        next(answer_remotely(Endpoint(server.url), given["served"], tokenizer, prompts, path, given["options"]))
