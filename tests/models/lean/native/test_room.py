"""Room for weights: pieces beside each other, aligned for native loads."""

from __future__ import annotations

import torch

from forerun.models.lean.native.room import LINE, PAGE, Room

from .kernels import kernels, needs_kernels

pytestmark = needs_kernels


def test_pieces_stand_beside_each_other_from_a_large_page_on() -> None:
    room = Room(kernels(), chunk=1 << 12)
    first, second = room.take(100), room.take(64)
    assert (len(first), len(second)) == (100, 64)
    assert first.data_ptr() % PAGE == 0
    assert second.data_ptr() == first.data_ptr() + 2 * LINE


def test_a_piece_that_does_not_fit_begins_another_chunk() -> None:
    room = Room(kernels(), chunk=1 << 12)
    first = room.take(4000).fill_(1)
    large = room.take(PAGE + 5).fill_(2)
    assert large.data_ptr() % PAGE == 0
    assert torch.equal(first, torch.ones(4000, dtype=torch.uint8))
    assert len(large) == PAGE + 5


def test_a_chunk_outlives_the_room() -> None:
    piece = Room(kernels()).take(LINE).fill_(7)
    assert piece.sum() == 7 * LINE


def test_an_empty_piece_takes_nothing() -> None:
    room = Room(kernels())
    before = room.take(1)
    assert len(room.take(0)) == 0
    assert room.take(1).data_ptr() == before.data_ptr() + LINE
