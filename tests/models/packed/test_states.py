"""A sequence's states at one layer."""

from __future__ import annotations

from weakref import ref

import pytest
import torch
from torch import Tensor

from forerun.models.packed.states import States


def rows(first: int, count: int) -> Tensor:
    """Row i of a text is i everywhere."""
    return torch.arange(first, first + count).float()[:, None].expand(count, 4)


def test_nothing_is_known_at_first() -> None:
    states = States()
    assert states.known == 0
    with pytest.raises(ValueError, match="states are known of 0 tokens, and 1 were asked for"):
        states.first(1)


def test_rows_are_known_once_they_are_moved_to_their_place() -> None:
    states = States()
    states.write(0, rows(0, 5))
    with pytest.raises(ValueError, match="states are known of 0 tokens, and 2 were asked for"):
        states.first(2)
    states.move([0, 2, 4], 0)
    assert states.known == 3
    assert states.first(3)[:, 0].tolist() == [0, 2, 4]


def test_it_grows_and_keeps_what_it_holds() -> None:
    states = States()
    for first in range(0, 300, 30):
        states.write(first, rows(first, 30))
        states.move(range(first, first + 30), first)
    assert torch.equal(states.first(300), rows(0, 300))


def test_forgotten_rows_are_not_known_and_never_become_more() -> None:
    states = States()
    states.write(0, rows(0, 5))
    states.move(range(5), 0)
    states.forget(9)
    assert states.known == 5
    states.forget(2)
    assert states.first(2)[:, 0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="states are known of 2 tokens, and 3 were asked for"):
        states.first(3)


def test_rows_of_inference_mode_are_held_and_can_be_written_over() -> None:
    states = States()
    with torch.inference_mode():
        states.write(0, rows(0, 3) + 0)
        more = rows(7, 2) + 0
    states.move(range(3), 0)
    states.write(3, more)
    states.move([4], 3)
    assert states.first(4)[:, 0].tolist() == [0, 1, 2, 8]


def test_rows_that_are_written_again_replace_those_from_there_on() -> None:
    states = States()
    states.write(0, rows(0, 3))
    states.move(range(3), 0)
    for slot in (3, 4, 5):
        states.write(slot, rows(90, 1))
    states.write(3, rows(3, 2))
    states.move([3, 4], 3)
    assert states.first(5)[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_rows_that_were_never_kept_are_let_go_with_what_is_forgotten() -> None:
    states = States()
    dropped = rows(0, 3)
    held = ref(dropped)
    states.write(0, dropped)
    del dropped
    assert held() is not None
    states.forget(0)
    assert held() is None
