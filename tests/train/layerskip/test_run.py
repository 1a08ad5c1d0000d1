from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import Trainer

from forerun.errors import UnsupportedOption
from forerun.models.loading.load import open_module
from forerun.train.data.examples import fingerprint, split
from forerun.train.layerskip import run as layerskip
from forerun.train.layerskip.batches import collate
from forerun.train.layerskip.presets import preset
from forerun.train.layerskip.run import check_training, rows_of
from forerun.train.layerskip.settings import arguments

from ..runs import EXITS, ORDINARY, QUICK, examples, run, same, weights


class Killed(BaseException):
    """What stops a run from outside."""


def stopping(after: int) -> Any:
    """A `begin` whose tick raises Killed after some steps."""
    seen: list[int] = []

    def tick() -> None:
        seen.append(1)
        if len(seen) == after:
            raise Killed

    return lambda steps: tick


def test_training_lowers_the_loss_and_changes_every_weight(tiny: Path, tmp_path: Path) -> None:
    report = run(tiny, tmp_path / "out", settings=replace(QUICK, steps=30))

    losses = [loss for _, loss in report.losses]
    before, after = weights(tiny), weights(tmp_path / "out")
    assert sum(losses[-5:]) < sum(losses[:5])
    assert [name for name in before if torch.equal(before[name], after[name])] == []
    assert (report.steps, report.examples, report.held_out, report.main) == (30, 36, 4, True)


def test_without_dropout_and_exits_it_is_ordinary_training_bit_for_bit(tiny: Path, tmp_path: Path) -> None:
    run(tiny, tmp_path / "ours", ORDINARY)

    learnt, _ = split(examples(), QUICK.held_out, QUICK.seed)
    model = open_module(tiny).model
    plain = Trainer(
        model=model,
        args=arguments(tmp_path / "plain", ORDINARY, QUICK),
        data_collator=collate,
        train_dataset=rows_of(learnt, QUICK),
    )
    plain.train()
    model.save_pretrained(tmp_path / "theirs")

    assert same(weights(tmp_path / "ours"), weights(tmp_path / "theirs"))


@pytest.mark.parametrize("recipe", [EXITS, ORDINARY], ids=["layerskip", "ordinary"])
def test_a_run_that_is_killed_and_resumed_equals_one_that_was_not(tiny: Path, tmp_path: Path, recipe: Any) -> None:
    # ten steps are two passes over the examples and a bit
    settings = replace(QUICK, steps=10, save_every=3, accumulate=2)
    whole = run(tiny, tmp_path / "whole", recipe, settings)
    with pytest.raises(Killed):
        run(tiny, tmp_path / "killed", recipe, settings, begin=stopping(8))
    assert not (tmp_path / "killed").exists()

    resumed = run(tiny, tmp_path / "killed", recipe, settings, resume=True)

    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert resumed.losses == whole.losses
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["killed", "whole"]


def test_a_resumed_run_must_be_the_same_run(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tiny, tmp_path / "out", EXITS, replace(QUICK, save_every=1), begin=stopping(3))

    with pytest.raises(ValueError, match="had another settings"):
        run(tiny, tmp_path / "out", EXITS, replace(QUICK, save_every=1, seed=4), resume=True)
    assert (tmp_path / "out.part").exists()


def test_a_run_that_stops_before_its_first_checkpoint_leaves_nothing(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tiny, tmp_path / "out", begin=stopping(2))

    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_at_the_end_leaves_nothing(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        (given[3].path / "model").mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(layerskip, "_write", full)
    with pytest.raises(ValueError, match="no space left to write to"):
        run(tiny, tmp_path / "out")

    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_refused_before_the_first_step(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))

    with pytest.raises(ValueError, match="the run needs"):
        run(tiny, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_record_says_what_was_done_and_what_was_held_out(tiny: Path, tmp_path: Path) -> None:
    run(tiny, tmp_path / "out")

    about = json.loads((tmp_path / "out" / "layerskip.json").read_text())
    _, held = split(examples(), QUICK.held_out, QUICK.seed)
    assert about["run"]["recipe"] == EXITS.as_dict()
    assert about["run"]["data"] == fingerprint(examples()) != fingerprint(examples(39))
    assert [examples()[index] for index in about["held_out"]] == held
    assert about["versions"]["torch"] == torch.__version__


def test_held_out_examples_are_never_trained_on(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    def noted(rows: Any) -> Any:
        if torch.is_grad_enabled():
            seen.extend(tuple(row["input_ids"]) for row in rows)
        return collate(rows)

    monkeypatch.setattr(layerskip, "collate", noted)
    report = run(tiny, tmp_path / "out", settings=replace(QUICK, steps=None, epochs=1))

    about = json.loads((tmp_path / "out" / "layerskip.json").read_text())
    held = {examples()[index].ids for index in about["held_out"]}
    trained = seen[: report.examples]
    assert len(set(trained)) == 36
    assert held.isdisjoint(trained)


def test_logs_are_readable_by_tensorboard(tiny: Path, tmp_path: Path) -> None:
    report = run(tiny, tmp_path / "out")

    logs = EventAccumulator(str(min((tmp_path / "out" / "logs").iterdir())))
    logs.Reload()
    assert [event.value for event in logs.Scalars("train/loss")] == pytest.approx([loss for _, loss in report.losses])


def test_the_result_is_in_the_dtype_of_the_model_and_brings_its_tokenizer(tiny: Path, tmp_path: Path) -> None:
    module = open_module(tiny, dtype="bfloat16")

    layerskip.train(module, examples(), tmp_path / "out", EXITS, replace(QUICK, steps=1))

    opened = open_module(tmp_path / "out")
    assert opened.model.dtype == torch.bfloat16
    assert opened.tokenizer is not None


@pytest.mark.parametrize(
    "change",
    [{"bf16": True}, {"checkpoint_layers": True}, {"pack": 32}, {"accumulate": 3}, {"epochs": 0.5, "steps": None}],
    ids=["bf16", "checkpoint_layers", "pack", "accumulate", "epochs"],
)
def test_every_setting_trains(tiny: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    steps: list[int] = []

    def begin(total: int) -> Any:
        return lambda: steps.append(total)

    report = run(tiny, tmp_path / "out", settings=replace(QUICK, **{"steps": 3, **change}), begin=begin)

    assert report.steps == len(steps) == steps[0]
    assert not same(weights(tiny), weights(tmp_path / "out"))


def test_checkpointed_layers_learn_the_same(tiny: Path, tmp_path: Path) -> None:
    run(tiny, tmp_path / "out")
    run(tiny, tmp_path / "spared", settings=replace(QUICK, checkpoint_layers=True))

    one, other = weights(tmp_path / "out"), weights(tmp_path / "spared")
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)


def test_accumulated_batches_have_the_loss_of_one_large_batch(tiny: Path, tmp_path: Path) -> None:
    recipe = replace(EXITS, p_max=0.0)
    large = run(tiny, tmp_path / "large", recipe, replace(QUICK, batch_size=8))
    small = run(tiny, tmp_path / "small", recipe, replace(QUICK, batch_size=4, accumulate=2))

    assert [loss for _, loss in small.losses] == pytest.approx([loss for _, loss in large.losses], rel=1e-4)


def test_lora_is_merged_into_an_ordinary_checkpoint(tiny: Path, tmp_path: Path) -> None:
    run(tiny, tmp_path / "out", settings=replace(QUICK, lora_rank=2))

    before, after = weights(tiny), weights(tmp_path / "out")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert {name.split(".")[-2] for name in changed} == {
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    }


def test_from_scratch_starts_from_new_weights(tiny: Path, tmp_path: Path) -> None:
    recipe = replace(preset("from_scratch"), learning_rate=1e-9)

    run(tiny, tmp_path / "out", recipe, replace(QUICK, steps=2))

    before, after = weights(tiny), weights(tmp_path / "out")
    name = "model.layers.1.mlp.up_proj.weight"
    assert float(before[name].std()) > 5 * float(after[name].std())


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layerskip, "find_spec", lambda name: None if name == "peft" else name)

    with pytest.raises(UnsupportedOption, match=r"training needs peft: pip install 'forerun\[train\]'"):
        check_training()
