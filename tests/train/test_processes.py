"""Two processes that train together learn what one learns alone, and drop the same samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import TCPStore

from forerun.cli import run
from forerun.errors import ForerunError, UnsupportedOption
from forerun.train.processes import ALONE, Processes, joined, launched, sharding_asked

from .runs import examples

PATIENCE = 900  # seconds: on a busy machine most of it goes into imports


@dataclass(frozen=True)
class Together:
    """reports are the first process's, by run; kept the samples that ran through a layer, by process, run and call."""

    reports: list[dict[str, Any]]
    kept: list[list[list[list[int]]]]
    said_by_the_second: str


def command(tiny: Path, folder: Path, name: str, *given: str) -> list[str]:
    data = folder / "data.jsonl"
    lines = ({"prompt_ids": one.ids[: one.start], "answer_ids": one.ids[one.start :]} for one in examples())
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = f"train layerskip {tiny} --data {data} --output {folder / name} --json --steps 4 --learning-rate 1e-3"
    asked += " --no-bf16 --log-every 1 --save-every 0 --curriculum rotational --rotation 2"
    return [*asked.split(), *given]


def in_two_processes(folder: Path, runs: Sequence[list[str]]) -> Together:
    """They meet as under torchrun, at a store that the launcher holds; here it is this process.

    A store's port is the system's choice, made as the store begins to listen, so no other program can come in between.
    """
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in runs]
    asked = json.dumps([(store.port, one) for store, one in zip(stores, runs, strict=True)])
    script = str(Path(__file__).with_name("one_of_two.py"))
    shared = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    told = [[folder / f"{what}-{rank}" for what in ("out", "err", "kept")] for rank in (0, 1)]
    with ExitStack() as stack:
        running: list[subprocess.Popen[bytes]] = []
        for rank, (out, err, kept) in enumerate(told):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
            one = subprocess.Popen(
                [sys.executable, script, asked, str(kept)],
                env={**os.environ, **shared, **place},
                stdout=stack.enter_context(out.open("wb")),
                stderr=stack.enter_context(err.open("wb")),
            )
            stack.callback(one.wait)
            stack.callback(one.kill)
            running.append(one)
        _wait(running)
    for one, (_, err, _) in zip(running, told, strict=True):
        assert one.returncode == 0, err.read_text()
    reports = [json.loads(line) for line in told[0][0].read_text().splitlines()]
    return Together(reports, [json.loads(kept.read_text()) for _, _, kept in told], told[1][0].read_text())


def _wait(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Until both have ended, or one has failed: the other would wait for it in vain."""
    until = time.monotonic() + PATIENCE
    while any(one.poll() is None for one in running) and not any(one.returncode for one in running):
        assert time.monotonic() < until, f"not done after {PATIENCE} s"
        time.sleep(0.05)


def losses(report: dict[str, Any]) -> list[float]:
    return [loss for _, loss in report["losses"]]


def test_two_processes_learn_what_one_does_with_a_batch_twice_as_large_and_drop_the_same_samples(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One test, since most of its time goes into starting the processes."""
    rates = {"whole": "0", "dropping": "0.9"}
    runs = [command(tiny, tmp_path, name, "--batch-size", "4", "--p-max", rate) for name, rate in rates.items()]
    together = in_two_processes(tmp_path, runs)
    assert run(command(tiny, tmp_path, "alone", "--batch-size", "8", "--p-max", "0")) == 0
    alone = json.loads(capsys.readouterr().out)

    whole, dropping = together.reports
    assert losses(whole) == pytest.approx(losses(alone), rel=1e-4)
    assert whole["held_out_loss"] == pytest.approx(alone["held_out_loss"], rel=1e-4)
    assert losses(dropping) != pytest.approx(losses(alone), rel=1e-3)

    assert together.kept[0] == together.kept[1]
    kept_whole, kept_dropping = together.kept[0]
    assert {tuple(samples) for samples in kept_whole} == {(0, 1, 2, 3)}
    # also layers that no sample runs through, whose gradients the other process waits for all the same
    assert {len(samples) for samples in kept_dropping} == {0, 1, 2, 3, 4}

    # the first process alone tells and writes
    assert together.said_by_the_second == ""
    for report in together.reports:
        assert report["main"]
        assert {path.name for path in Path(report["output"]).iterdir()} >= {"model.safetensors", "layerskip.json"}


def test_a_process_without_a_launcher_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert launched() == ALONE
    assert ALONE.main
    with joined() as processes:
        processes.wait()
        value = torch.ones(2, requires_grad=True)
        assert processes.add_up(value).tolist() == [1, 1]
        assert not processes.add_up(value).requires_grad


def test_the_launcher_says_which_of_how_many_a_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert launched() == Processes(2, 4)
    assert not launched().main


@pytest.fixture
def group_of_two(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is called of torch's processes, which do nothing."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    called: list[str] = []
    for name in ("init_process_group", "barrier", "destroy_process_group"):
        monkeypatch.setattr(
            torch.distributed, name, lambda *given, called=called, name=name, **more: called.append(name)
        )
    return called


def test_processes_part_when_all_have_come_to_the_end(group_of_two: list[str]) -> None:
    with joined() as processes:
        assert processes == Processes(0, 2)
    assert group_of_two == ["init_process_group", "barrier", "destroy_process_group"]


def test_the_end_of_another_process_is_told_in_one_sentence(group_of_two: list[str]) -> None:
    with pytest.raises(ForerunError, match="another process of this launch has ended before its time"), joined():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")
    assert group_of_two[-1] == "destroy_process_group"


def test_an_error_of_its_own_is_told_as_it_is(group_of_two: list[str]) -> None:
    with pytest.raises(RuntimeError, match="shapes don't fit"), joined():
        raise RuntimeError("shapes don't fit")
    with pytest.raises(ValueError, match="no space"), joined():
        raise ValueError("no space")
    # nobody waits for the others then
    assert "barrier" not in group_of_two


def test_a_launch_without_fsdp_asks_for_no_sharding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELERATE_USE_FSDP", raising=False)
    monkeypatch.setenv("FSDP_VERSION", "1")
    assert not sharding_asked()
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")
    assert not sharding_asked()


def test_a_launch_with_fsdp_2_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("FSDP_ACTIVATION_CHECKPOINTING", "false")
    assert sharding_asked()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"FSDP_VERSION": "1"}, "shards with FSDP 2 only, and the launch asks for FSDP 1; add --fsdp_version 2"),
        ({}, "shards with FSDP 2 only, and the launch asks for FSDP 1"),
        ({"FSDP_VERSION": "2", "FSDP_ACTIVATION_CHECKPOINTING": "true"}, "activation checkpointing isn't supported"),
    ],
)
def test_what_a_launch_can_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], sentence: str
) -> None:
    for name in ("FSDP_VERSION", "FSDP_ACTIVATION_CHECKPOINTING"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"ACCELERATE_USE_FSDP": "true", **given}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UnsupportedOption, match=sentence):
        sharding_asked()
