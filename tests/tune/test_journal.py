from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forerun.tune.journal import Journal

from .tuning import Clock

ABOUT = {"model": "tiny", "seed": 0}


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Iterator[Journal]:
    with Journal(tmp_path / "log.jsonl", ABOUT, clock) as opened:
        yield opened


def again(tmp_path: Path, about: dict[str, Any] | None = None) -> Journal:
    return Journal(tmp_path / "log.jsonl", ABOUT if about is None else about, Clock())


def never() -> dict[str, Any]:
    raise AssertionError("measured twice")


def test_a_measurement_is_made_once(journal: Journal) -> None:
    assert journal.kept("way", "lookup", lambda: {"rate": 0.5}) == {"rate": 0.5}
    assert journal.kept("way", "lookup", never) == {"rate": 0.5}


def test_kinds_keep_equal_names_apart(journal: Journal) -> None:
    journal.kept("way", "lookup", lambda: {"rate": 0.5})

    assert journal.kept("heat", "lookup", lambda: {"rate": 0.7}) == {"rate": 0.7}


def test_what_is_given_is_what_a_later_run_reads(journal: Journal) -> None:
    assert journal.kept("way", "lookup", lambda: {"ids": (1, 2)}) == {"ids": [1, 2]}


def test_a_later_run_knows_what_was_measured(journal: Journal, tmp_path: Path) -> None:
    journal.kept("way", "lookup", lambda: {"rate": 0.5})

    with again(tmp_path) as other:
        assert other.kept("way", "lookup", never) == {"rate": 0.5}


def test_a_measurement_that_fails_is_not_kept(journal: Journal) -> None:
    with pytest.raises(AssertionError):
        journal.kept("way", "lookup", never)

    assert journal.known("way", "lookup") is None


def test_the_time_spent_goes_on_where_it_was_written_down_last(journal: Journal, clock: Clock, tmp_path: Path) -> None:
    clock.seconds += 7
    journal.kept("way", "lookup", dict)
    clock.seconds += 30

    assert journal.spent == 37
    with again(tmp_path) as other:
        assert other.spent == 7


def test_nothing_is_measured_after_the_time_but_what_is_known_is_given(journal: Journal, clock: Clock) -> None:
    journal.kept("way", "lookup", lambda: {"rate": 0.5})
    clock.seconds += 10

    assert journal.within(10, "way", "lookup", never) == {"rate": 0.5}
    assert journal.within(10, "way", "exit 3", never) is None
    assert journal.within(11, "way", "exit 3", lambda: {"rate": 0.1}) == {"rate": 0.1}


def test_the_log_of_another_run_is_refused(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"log\.jsonl is the log of a run that differs in seed; remove it"):
        again(tmp_path, {**ABOUT, "seed": 1})


def test_the_line_that_a_kill_cut_off_is_lost_and_no_other(journal: Journal, tmp_path: Path) -> None:
    journal.kept("way", "lookup", lambda: {"rate": 0.5})
    journal.kept("way", "exit 3", lambda: {"rate": 0.1})
    file = tmp_path / "log.jsonl"
    file.write_bytes(file.read_bytes()[:-9])

    with again(tmp_path) as other:
        assert other.known("way", "lookup") == {"rate": 0.5}
        assert other.known("way", "exit 3") is None


def test_a_line_that_is_no_measurement_is_named(tmp_path: Path) -> None:
    with again(tmp_path) as opened:
        opened.kept("a", "b", lambda: {"x": 1})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('\n{"kind": "a"}\n')

    with pytest.raises(ValueError, match=r"log\.jsonl, line 4 is no measurement"):
        again(tmp_path)
