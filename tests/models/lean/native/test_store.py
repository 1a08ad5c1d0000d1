"""Keys and values of the native step: they grow, move and belong to one kind of runner."""

from __future__ import annotations

import pytest
import torch

from forerun.errors import UnsupportedModel
from forerun.models.lean.native.store import SLOTS, BlockStore


def numbered(store: BlockStore) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values by slot, filled with the slot's number."""
    assert store._keys is not None
    assert store._values is not None
    slots = torch.arange(store.capacity, dtype=torch.float32)
    store._keys[:] = slots.view(1, 1, -1, 1, 16)
    store._values[:] = slots.view(1, 1, -1, 1)
    return store._keys, store._values


def test_it_is_made_on_first_use_in_whole_blocks() -> None:
    store = BlockStore(2, 3, 8, 5)
    assert store._keys is None
    keys, values = store.reserve(5)
    assert store.capacity == SLOTS
    assert keys != values
    assert store.reserve(SLOTS) == (keys, values)


def test_growing_keeps_what_was_held() -> None:
    store = BlockStore(2, 3, 8, SLOTS)
    store.reserve(1)
    numbered(store)
    store.reserve(5 * SLOTS)
    assert store.capacity == 8 * SLOTS
    assert store._keys is not None
    assert store._values is not None
    assert store._keys[1, 2, 3, 7].tolist() == [float(slot) for slot in range(48, 64)]
    assert store._values[1, 2, SLOTS - 1, 7] == SLOTS - 1
    assert store._values[:, :, SLOTS:].count_nonzero() == 0


def test_slots_move_keys_and_values_alike() -> None:
    store = BlockStore(1, 2, 8, SLOTS)
    store.reserve(40)
    keys, values = numbered(store)
    store.move([17, 20, 33], 15)
    assert values[0, 1, 15:19, 3].tolist() == [17, 20, 33, 18]
    assert keys[0, 1, :, 3].flatten()[15:19].tolist() == [17, 20, 33, 18]


def test_slots_of_half_the_bytes_move_and_grow_alike() -> None:
    store = BlockStore(1, 2, 40, SLOTS, half=True)
    store.reserve(40)
    assert store._keys is not None
    assert store._values is not None
    assert store._keys.dtype == torch.bfloat16
    assert store._keys.shape == (1, 2, SLOTS // 32, 40, 32)
    assert store._values.shape == (1, 2, SLOTS, 64)
    # two slots, 16 apart, beside each other
    numbers = torch.arange(SLOTS).view(-1, 2, 16).mT.reshape(SLOTS // 32, 1, 32)
    store._keys[:] = numbers
    store._values[:] = torch.arange(SLOTS).view(-1, 1)
    store.move([17, 20, 33, 50], 15)
    store.reserve(2 * SLOTS)
    keys = store._keys[0, 1, :, 3].view(-1, 16, 2).mT.flatten()
    assert keys[:SLOTS].tolist() == store._values[0, 1, :SLOTS, 39].tolist()
    assert keys[14:20].tolist() == [14, 17, 20, 33, 50, 19]
    assert store._values[:, :, SLOTS:].count_nonzero() == 0


@pytest.mark.parametrize("slots", [[3, 2], [5, 5], [1]])
def test_slots_that_would_overwrite_each_other_are_refused(slots: list[int]) -> None:
    store = BlockStore(1, 2, 8, SLOTS)
    store.reserve(8)
    with pytest.raises(ValueError, match="ascending order, from 2 on"):
        store.move(slots, 2)


def test_moving_nothing_anywhere_needs_no_room() -> None:
    store = BlockStore(1, 2, 8, SLOTS)
    store.move([3, 4], 1)
    store.move([], 0)
    assert store._keys is None


def test_another_runner_can_not_write_to_it() -> None:
    rows = torch.zeros(2, 1, 8)
    with pytest.raises(UnsupportedModel, match="made for another runner"):
        BlockStore(1, 2, 8, SLOTS).write(0, 0, rows, rows)
