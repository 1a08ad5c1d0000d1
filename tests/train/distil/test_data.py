"""Batches of an exit adapter's training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from forerun.train.data.examples import Example
from forerun.train.distil.data import DistilData, ranking_of
from forerun.train.processes import Processes

from ..adapting import LAYERS, answered, engine, states_of, store_of


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistilData]:
    folder = tmp_path_factory.mktemp("states")
    stores = [store_of(folder / "one", answered()[:3]), store_of(folder / "other", answered()[3:])]
    yield DistilData(answered(), stores, 2, LAYERS)
    for store in stores:
        store.close()


def test_every_text_comes_once_an_epoch_and_batches_are_as_large_as_asked(data: DistilData) -> None:
    for seed in (None, 0, 1):
        groups = data.groups(60, seed)
        assert sorted(one.ids for group in groups for one in group) == sorted(one.ids for one in answered())
        assert len(groups) > 1
        assert all(len(group) * max(len(one.ids) for one in group) <= 60 + 24 for group in groups)


def test_a_text_longer_than_a_batch_is_a_batch_of_its_own(data: DistilData) -> None:
    assert [len(group) for group in data.groups(1)] == [1] * len(answered())


def test_the_seed_decides_the_order(data: DistilData) -> None:
    assert data.groups(60, 3) == data.groups(60, 3)
    assert data.groups(60, 3) != data.groups(60, 4)
    lengths = [len(one.ids) for group in data.groups(60) for one in group]
    assert lengths == sorted(lengths)


@pytest.mark.parametrize("exit_layer", [2, LAYERS])
def test_a_batch_holds_the_models_states_of_each_text(data: DistilData, exit_layer: int) -> None:
    (batch,) = replace(data, exit_layer=exit_layer).batches(10_000)
    for row, example in enumerate(sorted(answered(), key=lambda one: (len(one.ids), one.ids))):
        length = len(example.ids) - 1
        assert tuple(batch.ids[row, : length + 1].tolist()) == example.ids
        for held, layer in ((batch.states, exit_layer), (batch.last, LAYERS)):
            own = states_of(engine().runner, example.ids[:-1], layer)
            torch.testing.assert_close(held[row, :length].float(), own, atol=0.02, rtol=0.01)
            assert not held[row, length:].any()


@pytest.mark.parametrize("size", [2, 3])
def test_of_each_batch_every_process_has_its_share(data: DistilData, size: int) -> None:
    shares = [list(data.batches(60, 1, Processes(rank, size))) for rank in range(size)]
    for group, *batches in zip(data.groups(60, 1), *shares, strict=True):
        texts = [
            tuple(ids[: len(one.ids)])
            for batch in batches
            for ids, learnt in zip(batch.ids.tolist(), batch.learnt, strict=True)
            for one in group
            if learnt.any() and tuple(ids[: len(one.ids)]) == one.ids
        ]
        assert sorted(texts) == sorted(one.ids for one in group)


def test_a_process_for_which_no_text_is_left_learns_from_none(data: DistilData) -> None:
    mine, others = ([batch.learnt.any() for batch in data.batches(1, processes=Processes(rank, 2))] for rank in (0, 1))
    assert all(mine)
    assert not any(others)


def test_the_rows_after_which_an_answers_token_stands_are_learnt(data: DistilData) -> None:
    (batch,) = data.batches(10_000)
    for row, example in enumerate(sorted(answered(), key=lambda one: (len(one.ids), one.ids))):
        expected = range(example.start - 1, len(example.ids) - 1)
        assert batch.learnt[row].nonzero().flatten().tolist() == list(expected)


def test_the_ranking_holds_answers_by_frequency_and_then_prompts() -> None:
    examples = [Example((9, 9, 9, 4, 5, 5), 3), Example((8, 7, 6, 5), 3), Example((9, 8, 4), 2)]
    assert ranking_of(examples).tolist() == [5, 4, 9, 8, 6, 7]
