"""Under accelerate launch with FSDP two processes learn what one does, and what they left is resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import TCPStore

from forerun.cli import run

from .runs import examples

LAUNCH = "-m accelerate.commands.launch --num_processes 2 --use_fsdp --fsdp_version 2 --main_process_port 0"
PATIENCE = 900  # seconds: on a busy machine most of it goes into imports
STUDENTS = {
    "draft": "train draft {tiny} --shape layers=2,vocabulary=200 --from-layers 0,3",
    "adapter": "train exit-adapter {tiny} --exit-layer 4 --vocabulary 200",
}
TAUGHT = "--epochs 2 --rows 60 --warmup 2 --held-out 0.2 --save-every 2 --json"
SKIP = (
    "train layerskip {tiny} --steps 4 --learning-rate 1e-3 --p-max 0 --curriculum rotational --rotation 2 --no-bf16 "
    "--log-every 1 --save-every 2 --json"
)


@dataclass(frozen=True)
class Launched:
    """What two processes made in a folder, what the first one said, and how many numbers each held, by run."""

    folder: Path
    status: int
    out: str
    err: str
    held: list[list[int]]


def command(asked: str, tiny: Path, folder: Path, name: str, *given: str) -> list[str]:
    files = ["--data", str(folder / "data.jsonl"), "--output", str(folder / name)]
    return [*asked.format(tiny=tiny).split(), *files, *given]


def taught(tiny: Path, folder: Path, name: str, student: str, *given: str) -> list[str]:
    return command(f"{STUDENTS[student]} {TAUGHT}", tiny, folder, name, *given)


def launch(folder: Path, *script: str) -> subprocess.CompletedProcess[str]:
    """On CPUs, wherever this runs, and whatever accelerate is configured to."""
    own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HOME": str(folder / "home")}
    return subprocess.run(
        [sys.executable, *LAUNCH.split(), *script],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def alone(asked: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(asked) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "logs" / "log.jsonl").read_text().splitlines()]


def close(one: Path, other: Path, within: float) -> bool:
    """Whether the files of weights hold the same, and weights that differ by so much at most."""
    first, second = load_file(one), load_file(other)
    assert first.keys() == second.keys()
    return all(
        torch.allclose(first[name].float(), second[name].float(), rtol=0, atol=within)
        for name in first
        if first[name].is_floating_point()
    )


@pytest.fixture(scope="module")
def pair(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """One launch for all runs, since most of its time goes into starting the processes; its last run kills a process."""
    folder = tmp_path_factory.mktemp("launch")
    lines = ({"prompt_ids": one.ids[: one.start], "answer_ids": one.ids[one.start :]} for one in examples())
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs = [
        (taught(tiny, folder, "draft", "draft"), None),
        (taught(tiny, folder, "adapter", "adapter"), None),
        (taught(tiny, folder, "stopped", "draft"), "interrupted 5"),
        (command(SKIP, tiny, folder, "skip", "--batch-size", "4"), "killed 3"),
    ]
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in runs]
    asked = json.dumps([(store.port, *one) for store, one in zip(stores, runs, strict=True)])
    script = str(Path(__file__).with_name("one_of_a_launch.py"))
    done = launch(folder, script, asked, str(folder / "held"))
    held = [json.loads((folder / f"held-{rank}").read_text()) for rank in (0, 1)]
    return Launched(folder, done.returncode, done.stdout, done.stderr, held)


@pytest.mark.parametrize(
    ("student", "file", "within"), [("draft", "model.safetensors", 0.01), ("adapter", "adapter.safetensors", 0.01)]
)
def test_two_processes_teach_a_student_what_one_does(
    pair: Launched, tiny: Path, capsys: pytest.CaptureFixture[str], student: str, file: str, within: float
) -> None:
    told = alone(taught(tiny, pair.folder, f"{student}-alone", student), capsys)

    index = list(STUDENTS).index(student)
    reports = [json.loads(line) for line in pair.out.splitlines()]
    assert losses(pair.folder / student) == pytest.approx(losses(pair.folder / f"{student}-alone"), rel=5e-3)
    assert reports[index]["acceptance"] == pytest.approx(told["acceptance"], abs=0.1)
    assert {**reports[index], "output": 0, "seconds": 0, "acceptance": 0} == {
        **told,
        "output": 0,
        "seconds": 0,
        "acceptance": 0,
    }
    assert close(pair.folder / student / file, pair.folder / f"{student}-alone" / file, within)


def test_x(pair: Launched) -> None:
    print(pair)
    for f in sorted(pair.folder.rglob("*")):
        print(f)
    assert 0
