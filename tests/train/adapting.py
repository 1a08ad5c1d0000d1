"""A tiny model, its own greedy answers and their states, for the tests of exit adapters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun import Engine, load
from forerun.core.drive import drive
from forerun.core.identity import Identity, identity_of
from forerun.models.files.adapter import AdapterFile, AdapterShape
from forerun.models.packed.sequence import Sequence as Text
from forerun.testing import VOCABULARY, tiny_model
from forerun.train.data.examples import Example
from forerun.train.data.states import StateStore, record_missing
from forerun.train.distil.adapter import AdapterStudent, new_adapter, shape_like
from forerun.train.distil.adapter_block import ExitAdapter
from forerun.train.distil.data import DistilBatch, DistilData
from forerun.train.distil.frozen import Frozen, frozen_of
from forerun.train.distil.loop import Progress, Training
from forerun.train.distil.loss import Chosen
from forerun.train.distil.recipe import DistilRecipe
from forerun.train.distil.run import DistilRun

LAYERS = 4
KINDS = (("state", 2), ("state+token", 2), ("state+token", LAYERS))
QUICK = DistilRecipe(epochs=2, passes=2, rows=60, learning_rate=3e-3, warmup=2, vocabulary=VOCABULARY)


@cache
def base() -> Any:
    return tiny_model("llama")


@cache
def engine() -> Engine:
    return load(base())


@cache
def identity() -> Identity:
    return identity_of(base(), None)


@cache
def frozen() -> Frozen:
    return frozen_of(base())


@cache
def answered(count: int = 8, new: int = 12) -> tuple[Example, ...]:
    """Prompts of 2 to 6 tokens and what the model greedily makes of them."""
    prompts = [[(17 * number + step * step) % VOCABULARY for step in range(2 + number % 5)] for number in range(count)]
    results = engine().generate(prompts, max_new_tokens=new)
    return tuple(Example((*ids, *result.ids), len(ids)) for ids, result in zip(prompts, results, strict=True))


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    async def alone() -> Any:
        yield await coroutine

    return next(iter(drive(alone())))


def states_of(runner: Any, ids: Sequence[int], layer: int) -> Tensor:
    sequence = Text(runner)
    run(sequence.sync(list(ids), frozenset({layer})))
    return sequence.states(layer).clone()


def store_of(path: Path, examples: Sequence[Example], layers: Sequence[int] = (2, LAYERS)) -> StateStore:
    store = StateStore(path, layers, base().config.hidden_size, identity().weights)
    record_missing(engine(), store, [one.ids[:-1] for one in examples], lambda: None)
    return store


def exact(batch: DistilBatch, examples: Sequence[Example], exit_layer: int) -> DistilBatch:
    """The batch with states that were not rounded."""
    states, last = batch.states.float(), batch.last.float()
    for example in examples:
        row = next(i for i, ids in enumerate(batch.ids.tolist()) if tuple(ids[: len(example.ids)]) == example.ids)
        length = len(example.ids) - 1
        states[row, :length] = states_of(engine().runner, example.ids[:-1], exit_layer)
        last[row, :length] = states_of(engine().runner, example.ids[:-1], LAYERS)
    return replace(batch, states=states, last=last)


def shape(inputs: str, exit_layer: int, depth: int = 1) -> AdapterShape:
    return shape_like(base().config, exit_layer, inputs, depth)


def everything() -> Chosen:
    return Chosen(torch.arange(VOCABULARY), frozen().head.float())


def training(data: DistilData, inputs: str, recipe: DistilRecipe = QUICK, depth: int = 1) -> Training:
    adapter = new_adapter(shape(inputs, data.exit_layer, depth), frozen(), recipe.seed)
    return Training(student(adapter), frozen(), everything(), data, recipe)


def run_to(output: Path, **given: Any) -> DistilRun[Any]:
    """A run on the model's answers, of which a quarter is held out, that keeps a checkpoint every other step."""
    return DistilRun(
        **{"examples": answered(), "stores": (), "output": output, "held_out": 0.25, "save_every": 2, **given}
    )


def student(adapter: ExitAdapter) -> AdapterStudent:
    return AdapterStudent(adapter, identity(), frozen().embeddings, everything().head)


def adapter_of(learning: Training) -> ExitAdapter:
    assert isinstance(learning.student, AdapterStudent)
    return learning.student.adapter


class Killed(BaseException):
    """Nothing is cleaned up after it, as after a kill."""


def killed_at(step: int, start: Callable[[Callable[[Progress], None]], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a run, and end it as by a kill: the guard that tidies up does not run."""

    def kill(now: Progress) -> None:
        if now.step == step:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("forerun.train.output_folder.OutputFolder.sweep", lambda self: None)
        with pytest.raises(Killed):
            start(kill)


def file_of(adapter: ExitAdapter) -> AdapterFile:
    return AdapterFile(adapter.shape, identity(), adapter.named_weights(), torch.arange(VOCABULARY))
