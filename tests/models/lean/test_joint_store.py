"""The lean decoder's store: keys and values of all layers in one buffer."""

from __future__ import annotations

import torch
from torch import Tensor

from forerun.models.lean.joint_store import JointStore

LAYERS, HEADS, WIDTH = 3, 2, 4


def store(capacity: int = 8) -> JointStore:
    return JointStore(LAYERS, HEADS, WIDTH, capacity)


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(HEADS, count, WIDTH, generator=torch.Generator().manual_seed(seed))


def test_what_is_written_is_read() -> None:
    one = store()
    keys, values = rows(3), rows(3, 1)
    got_keys, got_values = one.write(1, 0, keys, values)
    assert torch.equal(got_keys, keys)
    assert torch.equal(got_values, values)


def test_views_write_and_read_the_same_slots() -> None:
    one = store()
    one.reserve(8, torch.device("cpu"))
    new, keys, values = one.views(2, 5, 8)
    both = torch.randn(3, 2 * HEADS, WIDTH)
    new[1].copy_(both)
    assert torch.equal(keys[1][:, :, 2:5], both[:, :HEADS].permute(1, 2, 0))
    assert torch.equal(values[1][:, 2:5], both[:, HEADS:].transpose(0, 1))
    assert float(keys[0].abs().sum()) == 0


def test_it_grows_and_keeps_what_it_holds() -> None:
    one = store(capacity=2)
    keys = rows(2)
    one.write(0, 0, keys, keys)
    one.reserve(9, torch.device("cpu"))
    assert one.capacity >= 9
    got, _ = one.write(0, 2, rows(1, 1), rows(1, 1))
    assert torch.equal(got[:, :2], keys)


def test_views_made_after_it_grew_are_of_what_it_holds_now() -> None:
    one = store(capacity=4)
    one.reserve(4, torch.device("cpu"))
    one.views(0, 1, 4)
    one.reserve(5, torch.device("cpu"))
    keys = rows(4)
    one.write(2, 0, keys, keys)
    assert torch.equal(one.views(0, 1, 4)[1][2].mT, keys)


def test_reserving_less_changes_nothing() -> None:
    one = store()
    one.write(0, 0, rows(1), rows(1))
    capacity = one.capacity
    one.reserve(1, torch.device("cpu"))
    assert one.capacity == capacity


def test_accepted_slots_are_gathered_in_every_layer() -> None:
    one = store()
    written = [rows(6, seed) for seed in range(LAYERS)]
    for layer, keys in enumerate(written):
        one.write(layer, 0, keys, keys + 1)
    one.move([2, 3, 5], 2)
    for layer, keys in enumerate(written):
        new, got_keys, got_values = one.views(0, 1, 5)
        assert torch.equal(got_keys[layer].mT, keys[:, [0, 1, 2, 3, 5]])
        assert torch.equal(got_values[layer], keys[:, [0, 1, 2, 3, 5]] + 1)
        assert new[layer].shape == (1, 2 * HEADS, WIDTH)
