"""Training an adapter: it learns, it goes on from a checkpoint bit for bit, and the base stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from forerun.testing import VOCABULARY, tiny_model
from forerun.train.distil import loop as module
from forerun.train.distil.adapter import new_adapter, shape_like
from forerun.train.distil.data import DistilData
from forerun.train.distil.frozen import frozen_of
from forerun.train.distil.loop import Training, acceptance
from forerun.train.distil.recipe import DistilRecipe

from ..adapting import KINDS, LAYERS, QUICK, adapter_of, answered, base, everything, frozen, shape, store_of, training
from ..runs import same


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistilData]:
    store = store_of(tmp_path_factory.mktemp("states"), answered())
    yield DistilData(answered(), [store], 2, LAYERS)
    store.close()


def weights(learning: Training) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in adapter_of(learning).named_weights().items()}


def test_a_new_adapter_begins_from_the_base() -> None:
    adapter = new_adapter(shape("state+token", 2, 2), frozen(), 0)
    own, theirs = dict(adapter.named_parameters()), dict(base().named_parameters())
    assert torch.equal(own["norm.weight"], theirs["model.norm.weight"])
    for name in ("self_attn.q_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight"):
        assert torch.equal(own[f"layers.0.{name}"], theirs[f"model.layers.2.{name}"])
        assert torch.equal(own[f"layers.1.{name}"], theirs[f"model.layers.3.{name}"])
    assert torch.equal(own["fuse.weight"][:, :32], torch.eye(32))


def test_an_adapter_deeper_than_its_base_and_one_of_another_family_can_begin_too() -> None:
    assert len(new_adapter(shape("state", 2, LAYERS + 1), frozen(), 0).layers) == LAYERS + 1
    other = tiny_model("gpt2")
    made = new_adapter(shape_like(other.config, 2, "state", 1), frozen_of(other), 0)
    assert all(parameter.isfinite().all() for parameter in made.parameters())


def test_beginning_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    new_adapter(shape("state", 2), frozen(), 0)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("inputs", "exit_layer"), KINDS)
def test_it_learns_and_the_base_stays_as_it_is(data: DistilData, inputs: str, exit_layer: int) -> None:
    before = {name: parameter.clone() for name, parameter in base().named_parameters()}
    learning = training(replace(data, exit_layer=exit_layer), inputs, replace(QUICK, epochs=8))
    told = list(learning.run())
    assert [now.step for now in told] == list(range(1, learning.steps + 1))
    assert told[-1].loss < 0.6 * told[0].loss
    assert len(told[0].passes) == (1 if inputs == "state" else 2)
    for name, parameter in base().named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


@pytest.mark.parametrize("inputs", ["state", "state+token"])
@pytest.mark.parametrize("stop", [1, 5])
def test_going_on_from_a_checkpoint_is_as_if_nothing_had_happened(
    data: DistilData, inputs: str, stop: int, tmp_path: Path
) -> None:
    whole = training(data, inputs)
    told = list(whole.run())
    assert len(told) > 5
    killed = training(data, inputs)
    running = killed.run()
    for _ in range(stop):
        next(running)
    killed.save(tmp_path / "checkpoint.safetensors")
    next(running)

    resumed = training(data, inputs)
    resumed.resume(tmp_path / "checkpoint.safetensors")
    assert resumed.step == stop
    assert list(resumed.run()) == told[stop:]
    assert same(weights(resumed), weights(whole))


def test_two_runs_alike_are_equal_and_another_seed_is_another_run(data: DistilData) -> None:
    runs = [training(data, "state+token", replace(QUICK, seed=seed)) for seed in (0, 0, 1)]
    for one in runs:
        assert list(one.run())
    assert same(weights(runs[0]), weights(runs[1]))
    assert not same(weights(runs[0]), weights(runs[2]))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error: disk full")])
def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(
    data: DistilData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    learning, file = training(data, "state"), tmp_path / "checkpoint.safetensors"
    learning.save(file)
    before = file.read_bytes()

    def full(tensors: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(ValueError, match="can't write the checkpoint"):
        learning.save(file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_the_rate_rises_and_falls(data: DistilData) -> None:
    rates = [now.rate for now in training(data, "state", replace(QUICK, epochs=6, warmup=3)).run()]
    highest = rates.index(max(rates))
    assert 1 <= highest <= 3
    assert rates[0] < rates[1]
    assert rates[highest:] == sorted(rates[highest:], reverse=True)
    assert rates[-1] >= 0.05 * QUICK.learning_rate


@pytest.mark.parametrize(("inputs", "exit_layer"), KINDS)
def test_acceptance_grows_with_training_and_tells_each_place(data: DistilData, inputs: str, exit_layer: int) -> None:
    texts = replace(data, exit_layer=exit_layer)
    learning = training(texts, inputs, replace(QUICK, epochs=15))
    before = acceptance(learning.student, frozen(), everything(), texts, 3)
    assert list(learning.run())
    after = acceptance(learning.student, frozen(), everything(), texts, 3)
    assert len(before) == len(after) == 3
    assert after[0] > before[0] + 0.1
    assert all(0 <= share <= 1 for share in after)
    assert learning.student.module.training


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        *(({name: 0}, f"{name} must be at least 1, got 0") for name in ("epochs", "passes", "rows", "vocabulary")),
        ({"learning_rate": 0}, "the learning rate must be above 0, got 0"),
        ({"fade": -1}, "fade must be at least 0, got -1"),
    ],
)
def test_a_recipe_out_of_range_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        DistilRecipe(**given)


@pytest.mark.parametrize(
    ("inputs", "exit_layer", "last"),
    [("state", 0, 3), ("state", LAYERS, 3), ("state+token", 5, 4), ("state+token", -1, 4)],
)
def test_an_exit_that_does_not_exist_is_refused(inputs: str, exit_layer: int, last: int) -> None:
    with pytest.raises(
        ValueError, match=rf"exit layer must be in 1..{last} for a model of 4 layers .* got {exit_layer}"
    ):
        shape(inputs, exit_layer)


def test_a_shape_is_like_the_bases_layers() -> None:
    made = shape("state", 2)
    assert (made.hidden_size, made.intermediate_size, made.heads, made.kv_heads, made.head_dim) == (32, 48, 4, 2, 8)
    with pytest.raises(ValueError, match="inputs must be one of state, state"):
        shape("tokens", 2)
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        shape("state", 2, 0)
    assert base().config.vocab_size == VOCABULARY
