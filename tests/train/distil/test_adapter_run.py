"""A whole run: what it writes, what it refuses, and that kills cost no more than the steps after a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import load
from forerun.models.files.adapter import AdapterFile, read_adapter
from forerun.models.loading.load import Module
from forerun.testing import VOCABULARY
from forerun.train.distil import loop as distil_module
from forerun.train.distil.adapter_run import train_adapter
from forerun.train.distil.loop import Progress, Training
from forerun.train.distil.loss import Chosen
from forerun.train.distil.run import DistilReport, DistilRun

from ..adapting import LAYERS, QUICK, answered, base, engine, identity, killed_at, run_to, shape, store_of
from ..runs import same as same_weights

Log = Callable[[Progress], None]


def a_run(output: Path, **changes: Any) -> DistilRun:
    return run_to(output, **{"shape": shape("state+token", 2), "recipe": replace(QUICK, epochs=4), **changes})


def trained(run: DistilRun, log: Log = lambda now: None, engine: Callable[[], Any] = engine) -> DistilReport:
    return train_adapter(run, Module(base(), None, "tiny", None), identity(), engine, lambda *bar: lambda: None, log)


def same(one: AdapterFile, other: AdapterFile) -> bool:
    return same_weights(one.weights, other.weights) and torch.equal(one.ranking, other.ranking)


def test_a_run_writes_an_adapter_that_drafts_and_tells_about_it(tmp_path: Path) -> None:
    told: list[Progress] = []
    report = trained(a_run(tmp_path / "deep" / "adapter"), told.append)
    file = read_adapter(tmp_path / "deep" / "adapter")
    assert file.base == identity()
    assert file.trained["acceptance"] == list(report.acceptance)
    assert (file.trained["steps"], report.steps) == (len(told), told[-1].steps)
    assert (report.texts, report.held_out, len(report.acceptance)) == (6, 2, 4)
    assert report.answer_tokens == 6 * 12
    log = (tmp_path / "deep" / "adapter" / "logs" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == list(range(1, report.steps + 1))
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["adapter"]

    drafting = load(base(), drafter="exit_adapter", drafter_options={"adapter": report.output})
    plain = engine().generate([5, 6, 7], max_new_tokens=20)
    assert drafting.generate([5, 6, 7], max_new_tokens=20).ids == plain.ids


def test_states_that_are_there_already_are_not_read_again(tmp_path: Path) -> None:
    store_of(tmp_path / "one", answered()[:5]).close()
    store_of(tmp_path / "other", answered()[5:]).close()

    def none() -> Any:
        pytest.fail("every text's states are there")

    kept = (tmp_path / "one", tmp_path / "other")
    with_states = a_run(tmp_path / "with", stores=kept)
    trained(with_states, engine=none)
    trained(a_run(tmp_path / "without"))
    assert same(read_adapter(tmp_path / "with"), read_adapter(tmp_path / "without"))
    assert all((folder / "index.jsonl").exists() for folder in kept)


def test_a_killed_run_goes_on_and_ends_bit_for_bit_as_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(a_run(tmp_path / "whole"))
    run = a_run(tmp_path / "killed")
    killed_at(5, partial(trained, run), monkeypatch)
    assert not run.output.exists()
    places = {path.name for path in (tmp_path / "killed.part").iterdir()}
    assert places == {"run.json", "states", "logs", "checkpoint-4"}
    told: list[Progress] = []
    trained(replace(run, resume=True), told.append, engine=lambda: pytest.fail("the states are there"))
    assert told[0].step == 5
    assert same(read_adapter(run.output), read_adapter(tmp_path / "whole"))
    logs = [(tmp_path / name / "logs" / "log.jsonl").read_text() for name in ("whole", "killed")]
    assert logs[0] == logs[1]
    assert not (tmp_path / "killed.part").exists()


def test_a_run_killed_before_its_first_checkpoint_or_while_writing_one_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(a_run(tmp_path / "whole"))
    run = a_run(tmp_path / "killed")
    killed_at(1, partial(trained, run), monkeypatch)
    half = tmp_path / "killed.part" / "checkpoint-4"
    half.mkdir()
    (half / "checkpoint.safetensors").write_bytes(b"half")
    trained(replace(run, resume=True))
    assert same(read_adapter(run.output), read_adapter(tmp_path / "whole"))


def test_a_run_that_fails_before_its_first_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    def fail(now: Progress) -> None:
        raise RuntimeError("it broke")

    store_of(tmp_path / "states", answered()).close()
    with pytest.raises(RuntimeError, match="it broke"):
        trained(a_run(tmp_path / "adapter", stores=(tmp_path / "states",)), fail)
    assert [path.name for path in tmp_path.iterdir()] == ["states"]


@pytest.mark.parametrize(("stage", "ticks"), [("reading texts", 0), ("reading texts", 3), ("training", 1)])
def test_texts_that_were_read_before_an_interrupt_are_not_read_again(tmp_path: Path, stage: str, ticks: int) -> None:
    """There are eight texts; the interrupt comes so many ticks into a stage."""
    bars: list[tuple[str, int]] = []
    left: list[int] = [ticks]

    def tick() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    def begin(what: str, count: int) -> Callable[[], None]:
        bars.append((what, count))
        if what == stage and left[0] == 0:
            raise KeyboardInterrupt
        return tick if what == stage else lambda: None

    def going(run: DistilRun) -> DistilReport:
        return train_adapter(run, Module(base(), None, "tiny", None), identity(), engine, begin, lambda now: None)

    run = a_run(tmp_path / "adapter", save_every=100)
    with pytest.raises(KeyboardInterrupt):
        going(run)
    kept = {path.name for path in tmp_path.glob("adapter.part/*")}
    assert kept == ({"run.json", "states"} if ticks else set())
    left[0], bars[:] = -1, []
    going(replace(run, resume=ticks > 0))
    told = dict(bars).get("reading texts", 0)
    assert told == 8 if ticks == 0 else told <= (5 if stage == "reading texts" else 0)
    trained(a_run(tmp_path / "whole", save_every=100))
    assert same(read_adapter(run.output), read_adapter(tmp_path / "whole"))


@pytest.mark.parametrize(
    "changes", [{"recipe": replace(QUICK, epochs=3)}, {"examples": answered()[:-1]}, {"shape": shape("state", 2)}]
)
def test_another_run_does_not_go_on_with_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    run = a_run(tmp_path / "adapter")
    killed_at(3, partial(trained, run), monkeypatch)
    with pytest.raises(ValueError, match=r"the run at .*adapter.part had another (recipe|data|shape)"):
        trained(replace(run, resume=True, **changes))
    with pytest.raises(ValueError, match=r"an interrupted run is at .*; continue it with --resume, or remove it"):
        trained(run)
    trained(replace(run, resume=True))


def test_an_output_that_is_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exists already; give another output"):
        trained(a_run(tmp_path))
    with pytest.raises(ValueError, match="nothing to resume"):
        trained(a_run(tmp_path / "adapter", resume=True))


def test_another_models_states_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    store_of(tmp_path / "states", answered()[:2], (1, LAYERS)).close()
    with pytest.raises(ValueError, match=r"holds states of the layers \[1, 4\], and \[2\] are needed"):
        trained(a_run(tmp_path / "adapter", stores=(tmp_path / "states",)))
    assert [path.name for path in tmp_path.iterdir()] == ["states"]


def test_a_full_disk_is_told_and_the_run_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(a_run(tmp_path / "whole"))
    real, calls = distil_module.save_file, []

    def full(tensors: Any, path: Path) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(tensors, path)

    run = a_run(tmp_path / "adapter")
    with monkeypatch.context() as patched:
        patched.setattr(distil_module, "save_file", full)
        with pytest.raises(ValueError, match=r"no space left to write to .*--resume continues from checkpoint-2"):
            trained(run)
    assert not run.output.exists()
    trained(replace(run, resume=True))
    assert same(read_adapter(run.output), read_adapter(tmp_path / "whole"))


def test_a_restricted_loss_holds_the_most_frequent_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []

    def looking(student: Any, frozen: Any, chosen: Chosen, *given: Any) -> Training:
        seen.append(chosen.tokens.tolist())
        return Training(student, frozen, chosen, *given)

    monkeypatch.setattr("forerun.train.distil.run.Training", looking)
    trained(a_run(tmp_path / "adapter", recipe=replace(QUICK, vocabulary=5)))
    assert seen == [sorted(read_adapter(tmp_path / "adapter").ranking[:5].tolist())]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"held_out": 0}, "held-out part must be above 0 and below 1, got 0"),
        ({"examples": answered()[:1]}, "at least two different examples are needed"),
        ({"examples": ()}, "at least two different examples are needed"),
        ({"recipe": replace(QUICK, vocabulary=VOCABULARY + 1)}, "must hold 1..97 tokens, got 98"),
    ],
)
def test_data_that_can_not_be_used_is_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        trained(a_run(tmp_path / "adapter", **changes))
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_come_every_so_many_steps(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="save_every must be at least 1, got 0"):
        a_run(tmp_path, save_every=0)
