"""The estimate at an untrained shape's acceptance, and what it says of itself."""

from __future__ import annotations

import math

import pytest

from forerun.design.acceptance import AT_A_TENTH, SLOPE, AcceptanceEstimate, MeasuredAcceptance, estimate_from


def logit(share: float) -> float:
    return math.log(share / (1 - share))


def test_without_a_measurement_everything_is_assumed_and_says_so() -> None:
    estimate = estimate_from([])
    assert estimate.at(0.1) == pytest.approx(AT_A_TENTH)
    assert estimate.slope == SLOPE
    assert estimate.basis.startswith("assumed, not measured: ")
    assert "64% of the time" in estimate.basis


def test_one_measurement_fixes_the_level_and_not_the_slope() -> None:
    estimate = estimate_from([MeasuredAcceptance(0.2, 0.42)])
    assert estimate.at(0.2) == pytest.approx(0.42)
    assert logit(estimate.at(0.4)) - logit(0.42) == pytest.approx(SLOPE * math.log(2))
    assert "the level is that of 1 measured draft;" in estimate.basis
    assert "is assumed, not measured" in estimate.basis


def test_several_of_one_size_leave_the_slope_assumed_too() -> None:
    estimate = estimate_from([MeasuredAcceptance(0.2, 0.4), MeasuredAcceptance(0.2, 0.6)])
    assert estimate.at(0.2) == pytest.approx(0.5)
    assert estimate.slope == SLOPE
    assert "2 measured drafts;" in estimate.basis


def test_measurements_far_apart_decide_about_the_slope() -> None:
    steep = AcceptanceEstimate(1.0, 1.2, "")
    sizes = (0.01, 0.1, 0.9)
    estimate = estimate_from([MeasuredAcceptance(size, steep.at(size)) for size in sizes])
    assert estimate.slope == pytest.approx(1.2, abs=0.02)
    assert all(estimate.at(size) == pytest.approx(steep.at(size), abs=0.02) for size in sizes)
    assert estimate.basis.startswith("fitted to 3 measured drafts: the slope in log parameters is 1.1")


def test_measurements_near_each_other_are_pulled_to_the_assumed_slope() -> None:
    near = estimate_from([MeasuredAcceptance(0.10, 0.5), MeasuredAcceptance(0.11, 0.6)])
    bare = (logit(0.6) - logit(0.5)) / math.log(1.1)
    assert SLOPE < near.slope < bare / 3


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_ends_of_the_range_can_be_measured(share: float) -> None:
    assert estimate_from([MeasuredAcceptance(0.1, share)]).at(0.1) == pytest.approx(share, abs=0.006)


def test_a_larger_draft_is_thought_surer() -> None:
    estimate = estimate_from([])
    shares = [estimate.at(size) for size in (0.01, 0.1, 0.5, 1.0)]
    assert shares == sorted(shares)
    assert all(0 < share < 1 for share in shares)
