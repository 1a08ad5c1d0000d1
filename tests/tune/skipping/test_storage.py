"""Searches that are killed, gone on with and shared."""

from __future__ import annotations

import json
import multiprocessing
import random
import sqlite3
import time
from contextlib import closing
from itertools import pairwise
from multiprocessing.context import ForkServerContext
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from forerun.tune.skipping.search import Budget, SkipSearch
from forerun.tune.skipping.storage import WORKER, Worker, open_storage, timing_lock

from ..searching import noted, price, search, work

NAME = "skip sets"
FILES = ("trials.log", "trials.db")


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Everything is imported once, so that a worker starts at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([SkipSearch.__module__])
    return context


def trials(storage: Path, *states: TrialState) -> list[optuna.trial.FrozenTrial]:
    study = optuna.load_study(study_name=NAME, storage=open_storage(storage))
    return study.get_trials(states=states or None)


def assert_whole(storage: Path) -> None:
    """A kill may cut off the journal's last line, nothing else."""
    if storage.suffix == ".db":
        with closing(sqlite3.connect(storage)) as opened:
            assert opened.execute("pragma integrity_check").fetchone() == ("ok",)
    else:
        *lines, _ = storage.read_text().split("\n")
        assert all(isinstance(json.loads(line), dict) for line in lines)


@pytest.mark.parametrize("file", FILES)
def test_a_search_killed_ten_times_loses_only_the_trials_under_way(
    processes: ForkServerContext, tmp_path: Path, file: str
) -> None:
    storage, notes = tmp_path / file, tmp_path / "notes"
    chance = random.Random(4)
    best, finished = float("inf"), 0
    for kill in range(10):
        worker = processes.Process(target=work, args=(storage, notes, 10_000, kill, 0.003))
        worker.start()
        known = len(noted(notes, "told"))
        deadline = time.monotonic() + 60
        while len(noted(notes, "told")) == known:
            assert worker.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        worker.kill()
        worker.join()

        complete = {one.number: one.value for one in trials(storage, TrialState.COMPLETE)}
        told = dict(noted(notes, "told"))
        assert len(told) > finished
        assert all(complete[int(number)] == value for number, value in told.items())
        assert len(complete) - len(told) <= kill + 1  # told of, but killed before the note
        assert len(trials(storage, TrialState.RUNNING)) <= 1
        assert min(complete.values()) <= best
        assert_whole(storage)
        best, finished = min(complete.values()), len(told)

    last = search(storage)
    done = len(last.tried)
    assert last.run(Budget(trials=done + 3)).value <= best
    assert len(last.tried) == done + 3
    assert not trials(storage, TrialState.RUNNING)
    assert len(trials(storage, TrialState.FAIL)) <= 10
    assert sorted(one.name for one in last.tried if one.name) == ["all", "nothing", "one"]


@pytest.mark.parametrize("file", FILES)
def test_two_workers_share_a_study_and_never_time_at_once(
    processes: ForkServerContext, tmp_path: Path, file: str
) -> None:
    storage, notes = tmp_path / file, tmp_path / "notes"
    workers = [processes.Process(target=work, args=(storage, notes, 24, seed, 0.02)) for seed in (0, 100)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0

    complete = trials(storage)
    assert [one.number for one in complete] == list(range(24))
    assert {one.state for one in complete} == {TrialState.COMPLETE}
    assert len({one.user_attrs[WORKER] for one in complete}) == 2
    timed = sorted(noted(notes, "timed"))
    assert len(timed) == 24
    assert all(end <= begin for (_, end), (begin, _) in pairwise(timed))
    names = [one.user_attrs["name"] for one in complete if "name" in one.user_attrs]
    assert sorted(names) == ["all", "nothing", "one"]


def test_a_line_that_a_kill_cut_off_is_removed(tmp_path: Path) -> None:
    journal = tmp_path / "trials.log"
    search(journal).run(Budget(trials=4))
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code":4,"wor')
    again = search(journal)
    again.run(Budget(trials=6))
    assert len(again.tried) == 6
    assert journal.read_bytes().startswith(whole)
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_a_lost_starting_point_is_tried_again(tmp_path: Path) -> None:
    journal = tmp_path / "trials.log"
    first = search(journal)
    study = optuna.load_study(study_name=NAME, storage=open_storage(journal))
    study.enqueue_trial(first._space.point(first._starts["one"]), user_attrs={"name": "one"})
    study.ask(dict(first._distributions))
    assert [one.state for one in trials(journal)] == [TrialState.RUNNING]
    first.run(Budget(trials=3))
    assert [one.state for one in trials(journal)] == [TrialState.FAIL, *[TrialState.COMPLETE] * 3]
    assert {one.name for one in first.tried} == {"nothing", "all", "one"}


def test_what_a_living_worker_has_under_way_is_left_alone(tmp_path: Path) -> None:
    journal = tmp_path / "trials.log"
    first = search(journal)
    study = optuna.load_study(study_name=NAME, storage=open_storage(journal))
    with Worker(study, journal) as worker:
        with worker.turn():
            trial = worker.ask(dict(first._distributions))
        search(journal).run(Budget(trials=3))
        assert [one.number for one in trials(journal, TrialState.RUNNING)] == [trial.number]
    search(journal).run(Budget(trials=3))
    assert [one.number for one in trials(journal, TrialState.FAIL)] == [trial.number]


def test_a_failing_price_leaves_no_trial_under_way(tmp_path: Path) -> None:
    broken = search(tmp_path / "trials.log")
    broken._price = lambda plan: 1 / 0
    with pytest.raises(ZeroDivisionError):
        broken.run(Budget(trials=3))
    assert len(trials(tmp_path / "trials.log", TrialState.FAIL)) == 1
    assert not trials(tmp_path / "trials.log", TrialState.RUNNING)


def test_an_sqlite_file_holds_a_search_too(tmp_path: Path) -> None:
    file = tmp_path / "trials.db"
    search(file).run(Budget(trials=3))
    again = search(file)
    assert again.run(Budget(trials=5)).value == min(price(one.plan) for one in again.tried)
    assert len(again.tried) == 5
    assert file.read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize("address", ["nosuch://x", "{tmp}/file/in/a.log"])
def test_a_storage_that_can_not_be_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="can't be opened"):
        open_storage(address.format(tmp=tmp_path))


def test_the_timing_lock_is_one_for_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with timing_lock():
        other = timing_lock()
        with pytest.raises(TimeoutError):
            other.acquire(timeout=0)
    with other:
        assert other.is_locked


def test_the_timing_lock_is_one_for_the_machine_without_a_cache_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with timing_lock():
        other = timing_lock()
        with pytest.raises(TimeoutError):
            other.acquire(timeout=0)
    assert Path(other.lock_file).parent.parent == tmp_path
