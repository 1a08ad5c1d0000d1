"""Recorded drafts become steps with times."""

from __future__ import annotations

import pytest

from forerun.core.values import Draft, DraftCounts, Signals
from forerun.traces.branches import Level, branches_of
from forerun.traces.read import position_of
from forerun.tune.replay.draft_points import branched, chain
from forerun.tune.replay.round_costs import constant

SIGNALS = Signals(0.5, 0.5, 0.5, (0.5,))
LEVELS = (
    Level((5, 6), (-1, -1), SIGNALS, (1,)),
    Level((7, 8), (0, 1), SIGNALS, (2,)),
    Level((9,), (2,), SIGNALS, (), merged=1, saved=1),
)


def test_a_chains_steps_cost_a_forward_each_where_they_have_a_law() -> None:
    place = chain(position_of((5, 6, 7), (SIGNALS, None, SIGNALS), (5, 6, 9)), constant(0.2), lambda n: 0.2 * n)

    assert [step.forward_seconds for step in place.steps] == pytest.approx([2e-4, 0, 2e-4])
    assert [step.counts.forwards for step in place.steps] == [1, 0, 1]
    assert place.path == (0, 1)
    assert (place.left, place.left_seconds) == (DraftCounts(), 0)


def test_a_trees_levels_cost_their_forwards_by_rows() -> None:
    costs = constant(0.2, rows=0.5)
    place = branched(branches_of(LEVELS, (3,), (6, 8)), costs, lambda n: 0.2 * n)

    # a forward of 2 rows is worth 1.5 of one, one of 3 rows 2
    assert [step.forward_seconds for step in place.steps] == pytest.approx([2e-4, 3e-4, 0])
    assert place.left_seconds == pytest.approx(4e-4)
    assert place.left == DraftCounts(forwards=1)
    assert place.path == (1, 3)


def test_a_trees_steps_are_those_of_its_drafter() -> None:
    draft = Draft.of(branched(branches_of(LEVELS, (), ()), constant(0), lambda n: 0.0).steps)

    assert draft.tokens == (5, 6, 7, 8, 9)
    assert draft.parents == (-1, -1, 0, 1, 2)
    assert draft.counts == DraftCounts(2, 1, 1)
    assert set(draft.laws) == {None}


def test_without_room_nothing_is_drafted() -> None:
    place = branched(None, constant(0.1), lambda n: n)

    assert (place.steps, place.path, place.left_seconds) == ((), (), 0)
