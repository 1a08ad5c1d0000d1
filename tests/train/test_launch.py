"""Under accelerate launch with FSDP two processes learn what one does, and what they left is resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
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
TAUGHT = "--epochs 1 --rows 60 --warmup 2 --held-out 0.2 --save-every 2 --json"
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


def differ(one: Path, other: Path) -> float:
    """By how much weights differ in the mean, over the files' weights in float."""
    first, second = load_file(one), load_file(other)
    assert first.keys() == second.keys()
    gaps = [(first[name] - second[name]).float().abs().flatten() for name in first if first[name].is_floating_point()]
    return float(torch.cat(gaps).mean())


def trained_numbers(file: Path) -> int:
    """How many the trained weights of a checkpoint have: the optimiser holds two moments of each."""
    return sum(value.numel() for name, value in load_file(file).items() if "exp_avg_sq" in name)


@pytest.fixture(scope="module")
def pair(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """One launch for all runs, since most of its time goes into starting the processes; its last run kills a process."""
    folder = tmp_path_factory.mktemp("launch")
    lines = ({"prompt_ids": one.ids[: one.start], "answer_ids": one.ids[one.start :]} for one in examples())
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs = [
        (taught(tiny, folder, "draft", "draft"), None),
        (taught(tiny, folder, "adapter", "adapter"), None),
        (taught(tiny, folder, "stopped", "draft"), "interrupted 3"),
        (command(SKIP, tiny, folder, "skip", "--batch-size", "4"), "killed 3"),
    ]
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in runs]
    asked = json.dumps([(store.port, *one) for store, one in zip(stores, runs, strict=True)])
    script = str(Path(__file__).with_name("one_of_a_launch.py"))
    done = launch(folder, script, asked, str(folder / "held"))
    held = [json.loads((folder / f"held-{rank}").read_text()) for rank in (0, 1)]
    return Launched(folder, done.returncode, done.stdout, done.stderr, held)


def told_by_the_first(pair: Launched) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pair.out.splitlines()]


@pytest.fixture(scope="module")
def alone_at_work(pair: Launched, tiny: Path) -> dict[str, dict[str, Any]]:
    """What one process made of the same data, in folders beside: its reports by run."""
    found = {}
    for name, asked in {
        "draft-alone": taught(tiny, pair.folder, "draft-alone", "draft"),
        "adapter-alone": taught(tiny, pair.folder, "adapter-alone", "adapter"),
        "skip-alone": command(SKIP, tiny, pair.folder, "skip-alone", "--batch-size", "8"),
    }.items():
        with redirect_stdout(StringIO()) as out:
            assert run(asked) == 0
        found[name] = json.loads(out.getvalue())
    return found


@pytest.mark.parametrize(("student", "file"), [("draft", "model.safetensors"), ("adapter", "adapter.safetensors")])
def test_two_processes_teach_a_student_what_one_does(
    pair: Launched, alone_at_work: dict[str, dict[str, Any]], student: str, file: str
) -> None:
    told = told_by_the_first(pair)[list(STUDENTS).index(student)]
    expected = alone_at_work[f"{student}-alone"]
    own, other = pair.folder / student, pair.folder / f"{student}-alone"
    assert (told["steps"], told["texts"], told["held_out"]) == (
        expected["steps"],
        expected["texts"],
        expected["held_out"],
    )
    # forwards are in bfloat16, of batches of another shape
    assert losses(own) == pytest.approx(losses(other), rel=5e-3)
    assert told["acceptance"] == pytest.approx(expected["acceptance"], abs=0.1)
    # a step moves a weight by some 1e-3
    assert differ(own / file, other / file) < 1e-4


def test_each_process_holds_half_of_the_trained_weights(pair: Launched) -> None:
    blocks = 2 * (32 * (32 + 16 + 16 + 32) + 3 * 32 * 48 + 2 * 32)
    fused = blocks // 2 + 32 * 64
    skip = trained_numbers(pair.folder / "skip.part" / "checkpoint-2" / "optimiser.safetensors")
    assert pair.held[0] == pair.held[1]
    assert [2 * one for one in pair.held[0]] == [blocks + 32, fused + 2 * 32, blocks + 32, skip]


def test_the_first_process_alone_tells_and_writes(pair: Launched) -> None:
    assert [told["output"] for told in told_by_the_first(pair)] == [str(pair.folder / name) for name in STUDENTS]
    assert pair.err.count("step 1: loss") == 1
    written = {"data.jsonl", "draft", "adapter", "stopped.part", "skip.part", "held-0", "held-1"}
    assert {path.name for path in pair.folder.iterdir()} >= written
    log = (pair.folder / "draft" / "logs" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == list(range(1, len(log) + 1))


def test_one_process_goes_on_where_two_were_interrupted(pair: Launched, tiny: Path) -> None:
    left = pair.folder / "stopped.part"
    assert (left / "checkpoint-2" / "checkpoint.safetensors").exists()

    with redirect_stdout(StringIO()):
        assert run(taught(tiny, pair.folder, "stopped", "draft", "--resume")) == 0

    assert losses(pair.folder / "stopped") == pytest.approx(losses(pair.folder / "draft"), rel=5e-3)
    files = (pair.folder / name / "model.safetensors" for name in ("stopped", "draft"))
    assert differ(*files) < 1e-4


def test_after_the_death_of_a_process_a_launch_resumes_and_ends_as_one_process_does(
    pair: Launched, alone_at_work: dict[str, dict[str, Any]], tiny: Path
) -> None:
    assert pair.status != 0
    assert "exitcode: 9" in pair.err
    resumed = [*command(SKIP, tiny, pair.folder, "skip", "--batch-size", "4"), "--resume"]
    with redirect_stderr(StringIO()) as err:
        assert run(resumed) == 2
    assert "had another launch: {'processes': 2, 'sharded': True} there" in err.getvalue()

    done = launch(pair.folder, "-m", "forerun", *resumed)

    assert done.returncode == 0, done.stderr
    told, expected = json.loads(done.stdout), alone_at_work["skip-alone"]
    assert [loss for _, loss in told["losses"]] == pytest.approx([loss for _, loss in expected["losses"]], rel=1e-4)
    assert told["held_out_loss"] == pytest.approx(expected["held_out_loss"], rel=1e-4)
    files = (pair.folder / name / "model.safetensors" for name in ("skip", "skip-alone"))
    assert differ(*files) < 1e-5
    assert not (pair.folder / "skip.part").exists()
