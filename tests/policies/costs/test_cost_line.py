from __future__ import annotations

import pytest

from forerun.policies.costs.cost_line import FIRST_SLOPE, line_through


def test_many_points_on_a_line_give_that_line() -> None:
    line = line_through({rows: (1 + 0.2 * rows, 50.0) for rows in (1, 3, 9)})
    assert line.at(6) == pytest.approx(2.2, abs=0.05)


def test_one_point_gives_the_slope_that_is_expected() -> None:
    line = line_through({1: (2.0, 5.0)})
    assert line.at(1) == 2.0
    assert line.at(2) == pytest.approx(2.0 * (1 + FIRST_SLOPE))


def test_it_never_falls_nor_leaves_what_was_seen_far_below() -> None:
    line = line_through({1: (3.0, 50.0), 9: (1.0, 50.0)})
    assert line.at(9) >= line.at(1) >= 0.5
