"""Rooms for rows: used again once nobody holds them, and never before."""

from __future__ import annotations

from forerun.models.lean.native.outputs import KEPT, Outputs


def test_room_that_nobody_holds_is_used_again() -> None:
    outputs = Outputs(5)
    first = outputs.take(3)
    place = first.data_ptr()
    assert first.shape == (3, 5)
    del first
    second = outputs.take(2)
    assert second.data_ptr() == place
    assert second.shape == (2, 5)


def test_room_that_anything_holds_is_left_alone() -> None:
    outputs = Outputs(5)
    whole = outputs.take(3)
    place, part = whole.data_ptr(), whole[1, :2]
    del whole
    other = outputs.take(3)
    assert other.data_ptr() != place
    del part
    assert outputs.take(3).data_ptr() == place


def test_a_view_as_an_array_holds_it_too() -> None:
    outputs = Outputs(5)
    array = outputs.take(1).detach().numpy()
    array[:] = 7
    outputs.take(1).fill_(0)
    assert (array == 7).all()


def test_room_grows_with_the_rows() -> None:
    outputs = Outputs(4)
    outputs.take(1)
    assert outputs.take(9).shape == (9, 4)
    assert outputs.take(0).shape == (0, 4)


def test_many_held_rows_are_all_apart() -> None:
    outputs = Outputs(4)
    held = [outputs.take(1) for _ in range(KEPT + 4)]
    assert len({rows.data_ptr() for rows in held}) == len(held)
