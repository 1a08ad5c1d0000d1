"""Parts and the state of a packed forward."""

from __future__ import annotations

from threading import Thread

import pytest
import torch

from forerun.errors import UnsupportedModel
from forerun.models.packed.forward import Packed, PackedMask, Part, Running
from forerun.models.packed.mask import Pattern
from forerun.models.packed.store import LayerStore


def part(n: int, committed: int = 0, resumed: int = 0, enter: int = 0, first: int = 0) -> Part:
    entry = torch.arange(resumed * 2, dtype=torch.float).view(resumed, 2) + 100 * n if resumed else None
    return Part(LayerStore(4, 8), committed, first, n, list(range(first + n)), entry=entry, enter=enter)


def test_resumed_rows_sit_out_the_layers_below_their_entry() -> None:
    one = part(4, resumed=3, enter=2)
    assert [one.idle(layer) for layer in range(4)] == [3, 3, 0, 0]
    assert one.resumed == 3


def test_fresh_rows_sit_nothing_out() -> None:
    assert [part(4).idle(layer) for layer in range(4)] == [0, 0, 0, 0]


def test_a_bias_is_zero_where_a_row_sees_and_minus_infinity_elsewhere() -> None:
    bias = part(2, committed=1).bias(Pattern(), 0, torch.zeros(1, dtype=torch.bfloat16))
    assert bias is not None
    assert bias.dtype == torch.bfloat16
    assert bias.tolist() == [[0, 0, -torch.inf], [0, 0, 0]]


def test_a_bias_leaves_out_the_rows_that_sit_out() -> None:
    bias = part(3, resumed=2, enter=1).bias(Pattern(), 2, torch.zeros(1))
    assert bias is None or bias.shape == (1, 3)


def test_a_single_row_after_a_prefix_needs_no_bias() -> None:
    assert part(1, committed=5).bias(Pattern(), 0, torch.zeros(1)) is None


def test_a_bias_is_made_once_for_all_layers_of_a_pattern() -> None:
    one = part(3)
    first = one.bias(Pattern(), 0, torch.zeros(1))
    assert one.bias(Pattern(), 0, torch.zeros(1)) is first
    assert one.bias(Pattern(window=2), 0, torch.zeros(1)) is not first


def test_active_rows_are_all_rows_where_nobody_sits_out() -> None:
    packed = Packed([part(2), part(3, resumed=2, enter=2)])
    assert packed.active(2) is None
    assert packed.num_rows == 5


def test_active_rows_leave_out_the_resumed_ones_of_each_part() -> None:
    packed = Packed([part(3, resumed=1, enter=1), part(2), part(4, resumed=4, enter=2)])
    assert packed.active(0) == [1, 2, 3, 4]
    assert packed.active(1) == [0, 1, 2, 3, 4]


def test_entries_are_put_in_front_of_their_part_on_a_copy() -> None:
    packed = Packed([part(2), part(3, resumed=2, enter=1), part(1, resumed=1, enter=1)])
    hidden = torch.zeros(1, 6, 2)
    brought = packed.bring_entries(hidden)
    assert brought[0, :, 0].tolist() == [0, 0, 300, 302, 0, 100]
    assert not hidden.any()


def test_without_entries_the_hidden_states_pass_through() -> None:
    hidden = torch.zeros(1, 2, 2)
    assert Packed([part(2)]).bring_entries(hidden) is hidden


def test_a_thread_sees_its_own_running_forward_alone_and_none_after_it() -> None:
    running, packed = Running(), Packed([])
    seen: list[Packed | None] = []
    with running.during(packed):
        assert running.packed is packed
        thread = Thread(target=lambda: seen.append(running.packed))
        thread.start()
        thread.join()
    assert seen == [None]
    assert running.packed is None
    with pytest.raises(KeyError), running.during(packed):
        raise KeyError
    assert running.packed is None


def test_a_layer_that_works_on_its_mask_itself_is_refused() -> None:
    mask = PackedMask(Pattern(), Packed([]))
    assert mask.pattern == Pattern()
    with pytest.raises(UnsupportedModel, match=r"a layer works on its mask itself \(its shape\)"):
        assert mask.shape
