from __future__ import annotations

from pathlib import Path

import pytest

from forerun.tune.plots import frontier, write_plots
from forerun.tune.report import report_of
from forerun.tune.skipping.skip_sets import SkipSets

from .test_report import DAMAGES, LOOKUP, OFF, TRIED, outcome

pytest.importorskip("matplotlib")

CURVE = [
    {"skipped": 0, "match_rate": 1.0, "cost": 1.0, "speedup": 0.5},
    {"skipped": 2, "match_rate": 0.8, "cost": 0.8, "speedup": 0.6},
]
PNG = b"\x89PNG"


def test_pictures_are_written_for_what_there_are_numbers_for(tmp_path: Path) -> None:
    sets = SkipSets(harms=DAMAGES, tried=[TRIED], curve=CURVE)

    written = write_plots(report_of(outcome(LOOKUP, LOOKUP, sets=sets)), tmp_path / "report")

    assert [path.name for path in written] == ["sweet_spot.png", "less_is_more.png", "systems.png"]
    assert all(path.read_bytes().startswith(PNG) for path in written)


def test_without_exits_and_skip_sets_their_pictures_are_left_out(tmp_path: Path) -> None:
    found = outcome(LOOKUP, LOOKUP, sets=SkipSets(), screened=[])

    assert [path.name for path in write_plots(report_of(found), tmp_path)] == ["systems.png"]


def test_a_search_that_timed_nothing_still_has_its_curve(tmp_path: Path) -> None:
    found = outcome(OFF, OFF, sets=SkipSets(curve=CURVE))

    assert "less_is_more.png" in [path.name for path in write_plots(report_of(found), tmp_path)]


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([(1.0, 0.0)], [(1.0, 0.0)]),
        ([(1.0, 0.0), (0.5, 0.2)], [(0.5, 0.2), (1.0, 0.0)]),
        ([(1.0, 0.0), (0.5, 0.2), (0.7, 0.3)], [(0.5, 0.2), (1.0, 0.0)]),
        ([(1.0, 0.1), (0.5, 0.1)], [(0.5, 0.1)]),
        ([(0.5, 0.1), (0.5, 0.1)], [(0.5, 0.1)]),
    ],
)
def test_the_frontier_holds_those_that_nobody_beats_in_both(
    places: list[tuple[float, float]], expected: list[tuple[float, float]]
) -> None:
    assert frontier(places) == expected
