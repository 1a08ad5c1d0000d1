"""The buffers of keys and values: writing, growing, gathering."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from forerun.models.packed.store import LayerStore, NoStore


def rows(*values: int, heads: int = 2, width: int = 3) -> Tensor:
    """Keys [heads, n, width] of which row i holds values[i], the heads told apart."""
    column = torch.tensor(values, dtype=torch.float)[None, :, None]
    return column + torch.arange(heads)[:, None, None] * 1000 + torch.zeros(heads, len(values), width)


def held(keys: Tensor) -> list[int]:
    assert torch.equal(keys[1], keys[0] + 1000)
    return [int(value) for value in keys[0, :, 0]]


def test_a_write_gives_all_slots_up_to_its_end() -> None:
    store = LayerStore(1, 8)
    store.write(0, 0, rows(1, 2), rows(11, 12))
    keys, values = store.write(0, 2, rows(3), rows(13))
    assert (held(keys), held(values)) == ([1, 2, 3], [11, 12, 13])


def test_a_write_over_old_slots_forgets_what_came_after() -> None:
    store = LayerStore(1, 8)
    store.write(0, 0, rows(1, 2, 3, 4), rows(1, 2, 3, 4))
    keys, _ = store.write(0, 1, rows(9), rows(9))
    assert held(keys) == [1, 9]


def test_layers_do_not_see_each_other() -> None:
    store = LayerStore(2, 8)
    store.write(0, 0, rows(1), rows(1))
    keys, _ = store.write(1, 0, rows(5), rows(5))
    again, _ = store.write(0, 1, rows(2), rows(2))
    assert (held(keys), held(again)) == ([5], [1, 2])


def test_layers_may_differ_in_heads_and_widths() -> None:
    store = LayerStore(2, 4)
    store.write(0, 0, rows(1), rows(1, width=5))
    keys, values = store.write(1, 0, rows(1, heads=4), rows(1, heads=4))
    assert (keys.shape, values.shape) == ((4, 1, 3), (4, 1, 3))


@pytest.mark.parametrize("step", [1, 3, 20])
def test_growing_keeps_what_is_held(step: int) -> None:
    store = LayerStore(1, 4)
    expected: list[int] = []
    for start in range(0, 40, step):
        new = list(range(start, start + step))
        expected += new
        keys, values = store.write(0, start, rows(*new), rows(*new))
        assert held(keys) == held(values) == expected
    assert store.capacity == 64


def test_a_layer_that_was_left_out_while_another_grew_catches_up() -> None:
    store = LayerStore(2, 4)
    for layer in (0, 1):
        store.write(layer, 0, rows(1, 2), rows(1, 2))
    store.write(0, 2, rows(*range(3, 13)), rows(*range(3, 13)))
    keys, _ = store.write(1, 2, rows(3, 4, 5), rows(3, 4, 5))
    assert held(keys) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("slots", "start"), [([3, 5, 6], 3), ([4, 5], 2), ([6], 0), ([2, 4, 6], 1), ([], 3), ([3, 4], 3)]
)
def test_moving_gathers_slots_even_where_they_overlap(slots: list[int], start: int) -> None:
    store = LayerStore(2, 8)
    for layer in (0, 1):
        store.write(layer, 0, rows(*range(8)), rows(*range(8)))
    store.move(slots, start)
    for layer in (0, 1):
        keys, values = store.write(layer, start + len(slots), rows(99), rows(99))
        assert held(keys) == held(values) == [*range(start), *slots, 99]


def test_moving_leaves_layers_that_hold_nothing_alone() -> None:
    store = LayerStore(2, 8)
    store.write(0, 0, rows(0, 1, 2), rows(0, 1, 2))
    store.move([2], 1)
    keys, _ = store.write(1, 0, rows(7), rows(7))
    assert held(keys) == [7]


def test_a_store_that_keeps_nothing_gives_back_what_is_written() -> None:
    store, keys = NoStore(), rows(1, 2)
    assert store.write(0, 0, keys, keys + 1)[0] is keys
    store.move([3], 1)
    assert held(store.write(0, 0, rows(7), rows(7))[0]) == [7]
    with pytest.raises(ValueError, match="begin at slot 0, got 2"):
        store.write(0, 2, keys, keys)
