"""forerun tune --engine, on a program that stands in for the engine's own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from forerun.cli import run
from forerun.engine.prompts.questions import read_questions
from forerun.tune.serving.process import Server, port_for
from tests.tune.serving.stand_in import stand_in

COUNT = 8


def laid_out(folder: Path, model: str = "m.gguf") -> tuple[str, ...]:
    """The command line of a short run in a folder, all but what a test adds."""
    (folder / model).touch()
    lines = (json.dumps({"prompt": f"question {number}"}) + "\n" for number in range(COUNT))
    (folder / "prompts.jsonl").write_text("".join(lines))
    files = ("--prompts", str(folder / "prompts.jsonl"), "-o", str(folder / "system.json"))
    return ("tune", str(folder / model), "--engine", "llama.cpp", *files, "--budget", "1s", "--max-new-tokens", "4")


def programmed(folder: Path) -> tuple[str, ...]:
    return ("--program", str(stand_in(folder)), "--methods", "ngram-simple")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over two loads."""
    folder = tmp_path_factory.mktemp("done")
    more = ("--concurrency", "1,2", "--report", str(folder / "report"), "--engine-args=--mlock --seed 1")
    assert run([*laid_out(folder), *programmed(folder), *more]) == 0
    return folder


def test_the_winner_is_written_with_its_launch_command(done: Path) -> None:
    told = json.loads((done / "system.json").read_text())

    assert told["forerun_engine_system"] == 1
    assert told["engine"] == "llama.cpp"
    assert told["name"].startswith("ngram-simple")
    assert told["measured"]["speedup"] > 1
    assert told["measured"]["acceptance"] == 0.75
    assert set(told["measured"]["by_load"]) == {"1", "2"}
    command = " ".join(told["command"])
    assert "--parallel 2" in command
    assert "--spec-type ngram-simple" in command
    assert command.endswith("--mlock --seed 1")


def test_the_launch_script_starts_the_server(done: Path) -> None:
    port = port_for(0)
    with closing(Server("it", [str(done / "system.json.launch.sh"), "--port", str(port)], {}, port, 30.0)) as opened:
        assert not opened.ended


def test_the_report_says_what_was_tried_and_on_what_it_was_judged(done: Path) -> None:
    told = json.loads((done / "report" / "report.json").read_text())

    assert (done / "report" / "summary.txt").read_text().splitlines() == told["summary"]
    assert told["winner"] == told["tried"]
    assert {one["name"] for one in told["first"]} == {"off", "ngram-simple 3 to 3 tokens"}
    assert [one["equal_texts"] for one in told["held_out"]] == [1.0, 1.0]
    held = {question.turns[0] for question in read_questions(done / "report" / "held_out.jsonl")}
    assert len(held) == round(COUNT / 3)
    assert held < {f"question {number}" for number in range(COUNT)}


def test_a_run_that_is_done_is_not_measured_again(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (done / "system.json.log.jsonl").read_bytes()

    more = ("--concurrency", "1,2", "--engine-args=--mlock --seed 1", "--json")
    assert run([*laid_out(done), *programmed(done), *more]) == 0

    assert (done / "system.json.log.jsonl").read_bytes() == before
    assert json.loads(capsys.readouterr().out)["winner"].startswith("ngram-simple")


def test_the_log_of_other_loads_is_refused(done: Path, forerun: Callable[..., Any]) -> None:
    ran = forerun(*laid_out(done), *programmed(done), "--engine-args=--mlock --seed 1")

    assert ran.status == 2
    assert "is the log of a run that differs in launch, loads" in ran.err


def test_servers_that_end_in_the_middle_are_left_out_and_off_wins(tmp_path: Path, forerun: Callable[..., Any]) -> None:
    ran = forerun(*laid_out(tmp_path, "mortal.gguf"), *programmed(tmp_path))

    assert ran.status == 0
    assert "Off won: nothing else could be tried." in ran.out
    assert "ended in the middle (exit code 7; it said: RuntimeError: out of memory)" in ran.out
    assert "--spec-type" not in json.loads((tmp_path / "system.json").read_text())["command"]
    kept = [json.loads(line) for line in (tmp_path / "system.json.log.jsonl").read_text().splitlines()[1:]]
    assert any("ngram-simple" in one["name"] for one in kept)


def test_a_server_without_drafts_that_goes_in_the_middle_is_one_sentence_and_what_was_measured_is_kept(
    tmp_path: Path, forerun: Callable[..., Any]
) -> None:
    command = (*laid_out(tmp_path, "fleeting.gguf"), *programmed(tmp_path))
    ran = forerun(*command)

    assert ran.status == 2
    last = ran.err.splitlines()[-1]
    assert "llama.cpp with off ended in the middle (exit code 7" in last
    assert last.endswith("system.json.log.jsonl, and the same command goes on from there")
    log = tmp_path / "system.json.log.jsonl"
    before = log.read_text()
    assert before.count("\n") > 1
    forerun(*command)
    assert log.read_text().startswith(before)


def test_an_address_that_goes_in_the_middle_is_one_sentence_and_what_was_measured_is_kept(
    tmp_path: Path, forerun: Callable[..., Any]
) -> None:
    program, given = stand_in(tmp_path), []
    with ExitStack() as stack:
        for name, more in (("off", ("--model", "fleeting")), ("mine", ("--spec-type", "x"))):
            port = port_for(0)
            server = stack.enter_context(closing(Server(name, [str(program), "--port", str(port), *more], {}, port)))
            given += ["--endpoint", f"{name}={server.url}"]
        ran = forerun(*laid_out(tmp_path), *given)

    assert ran.status == 2
    last = ran.err.splitlines()[-1]
    assert "can't be reached" in last
    assert last.endswith("system.json.log.jsonl, and the same command goes on from there")
    assert (tmp_path / "system.json.log.jsonl").read_text().count("\n") > 1


def test_a_server_that_comes_up_without_drafts_is_left_out(tmp_path: Path, forerun: Callable[..., Any]) -> None:
    ran = forerun(*laid_out(tmp_path, "foreign.gguf"), *programmed(tmp_path))

    assert ran.status == 0
    assert "came up without drafts; it said: E srv: failed to initialize speculative decoding" in ran.out


def test_a_model_that_does_not_load_is_one_sentence(tmp_path: Path, forerun: Callable[..., Any]) -> None:
    ran = forerun(*laid_out(tmp_path, "broken.gguf"), *programmed(tmp_path))

    assert ran.status == 2
    last = ran.err.splitlines()[-1]
    assert (
        "llama.cpp with off ended before it was ready (exit code 1; it said: ValueError: this model is broken)" in last
    )
    assert last.endswith("system.json.log.jsonl, and the same command goes on from there")


def test_a_missing_engine_is_one_sentence(tmp_path: Path, forerun: Callable[..., Any]) -> None:
    ran = forerun(*laid_out(tmp_path), "--program", tmp_path / "nothing")

    assert (ran.status, len(ran.err.splitlines())) == (2, 1)
    assert "llama.cpp is missing: no program" in ran.err


def test_an_engine_that_is_too_old_is_one_sentence(tmp_path: Path, forerun: Callable[..., Any]) -> None:
    ran = forerun(*laid_out(tmp_path), "--program", stand_in(tmp_path, new=False))

    assert (ran.status, len(ran.err.splitlines())) == (2, 1)
    assert "is too old for forerun to tune" in ran.err


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path, forerun: Callable[..., Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = forerun(*laid_out(tmp_path), *programmed(tmp_path), "--port", str(taken.getsockname()[1]))

    assert ran.status == 2
    assert "can't be had (Address already in use)" in ran.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--engine", "sglang"), "unknown engine 'sglang'; known: vllm, llama.cpp, transformers"),
        (("--weights", "int4"), "--weights is of no use with --engine llama.cpp; leave it out"),
        (("--max-prompt", "9"), "--max-prompt is of no use with --engine llama.cpp; leave it out"),
        (("--methods", "exit"), "unknown method 'exit' to tune llama.cpp by; known: ngram-simple"),
        (("--methods", "draft-model"), "method 'draft-model' needs --draft-model"),
        (
            ("--concurrency", "1,x"),
            "--concurrency takes numbers from 1 on, separated by commas, such as 1,8; got '1,x'",
        ),
        (("--endpoint", "http://host"), "--endpoint takes NAME=http://HOST:PORT, each name once, got 'http://host'"),
        (("--endpoint", "off=http://host"), "--endpoint compares servers that run"),
        (("--endpoint", "off=http://h", "--endpoint", "a=http://h", "--port", "9"), "--port launches servers, and"),
        (
            ("--endpoint", "off=http://h", "--endpoint", "a=http://h", "--threads", "1"),
            "--threads launches servers, and",
        ),
        (("--key-variable", "KEY"), "--key-variable is of no use to llama.cpp here; leave it out"),
        (("--dtype", "float16"), "a GGUF file has its own number format, got --dtype float16; leave it out"),
        (("--engine", ""), "needs --engine, one of vllm, llama.cpp, transformers"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    tmp_path: Path, forerun: Callable[..., Any], more: tuple[str, ...], sentence: str
) -> None:
    own = programmed(tmp_path)[:2] if "--endpoint" not in more else ()

    ran = forerun(*laid_out(tmp_path), *own, *more)

    assert (ran.status, len(ran.err.splitlines())) == (2, 1)
    assert sentence in ran.err


def test_servers_that_run_are_compared_by_their_addresses(tmp_path: Path, forerun: Callable[..., Any]) -> None:
    program, urls = stand_in(tmp_path), {}
    with ExitStack() as stack:
        for name, more in (("off", ()), ("mine", ("--spec-type", "x"))):
            port = port_for(0)
            server = stack.enter_context(closing(Server(name, [str(program), "--port", str(port), *more], {}, port)))
            urls[name] = server.url
        given = [part for name, url in urls.items() for part in ("--endpoint", f"{name}={url}")]
        ran = forerun(*laid_out(tmp_path), *given)

    assert ran.status == 0
    told = json.loads((tmp_path / "system.json").read_text())
    assert told["name"] in urls
    assert told["endpoint"] == urls[told["name"]]
    assert not (tmp_path / "system.json.launch.sh").exists()

    gone = forerun(*laid_out(tmp_path), *given)
    assert gone.status == 2
    assert "can't be reached" in gone.err.splitlines()[-1]


def test_transformers_answers_one_prompt_at_a_time(tiny: str, tmp_path: Path, forerun: Callable[..., Any]) -> None:
    line = [part if part != "llama.cpp" else "transformers" for part in laid_out(tmp_path)]
    line[1] = tiny

    ran = forerun(*line, "--raw", "--concurrency", "2")

    assert ran.status == 2
    assert "transformers drafts for one prompt at a time, got --concurrency up to 2; leave it at 1" in ran.err


def test_a_draft_model_of_another_vocabulary_is_one_sentence(
    tiny: str, tmp_path: Path, forerun: Callable[..., Any]
) -> None:
    line = [part if part != "llama.cpp" else "transformers" for part in laid_out(tmp_path)]
    line[1] = tiny
    (tmp_path / "config.json").write_text('{"vocab_size": 9}')

    ran = forerun(*line, "--raw", "--draft-model", tmp_path)

    assert (ran.status, len(ran.err.splitlines())) == (2, 1)
    assert f"the draft model {tmp_path} has a vocabulary of 9 tokens" in ran.err


def test_the_launch_script_can_be_run_by_everybody_who_can_read_it(done: Path) -> None:
    assert os.access(done / "system.json.launch.sh", os.X_OK)
    assert subprocess.run(["sh", "-n", done / "system.json.launch.sh"], check=False).returncode == 0
