from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.testing import tiny_model
from forerun.tune.journal import Journal
from forerun.tune.skipping.match_rate import Recorded, record
from forerun.tune.skipping.skip_sets import SkipSets, SkipSetSearch

from ..redundant import TARGET
from ..tuning import PROMPTS, Scripted, engine

FOREVER = 1e9


@pytest.fixture(scope="module")
def on() -> forerun.Engine:
    return engine()


@pytest.fixture(scope="module")
def answers(on: forerun.Engine) -> list[Recorded]:
    return record(on, PROMPTS[:5], 12)


def found(
    on: forerun.Engine,
    answers: list[Recorded],
    folder: Path,
    machine: Scripted | None = None,
    until: float = FOREVER,
    trials: int | None = 8,
    about: Mapping[str, Any] | None = None,
) -> SkipSets:
    machine = machine or Scripted()
    with Journal(folder / "log.jsonl", {}, machine.now) as journal:
        search = SkipSetSearch(on, answers, TARGET, machine, journal, folder / "sets", about or {}, trials)
        return search.run(until, lambda what: None)


def test_every_sublayer_has_its_harm(on: forerun.Engine, answers: list[Recorded], tmp_path: Path) -> None:
    sets = found(on, answers, tmp_path)

    assert set(sets.harms) == {f"{kind} {layer}" for kind in ("attention", "mlp") for layer in range(4)}
    assert all(-1 <= value <= 1 for value in sets.harms.values())
    assert max(sets.harms.values()) > 0


def test_the_best_timed_sets_that_leave_something_out_become_plans(
    on: forerun.Engine, answers: list[Recorded], tmp_path: Path
) -> None:
    sets = found(on, answers, tmp_path)

    assert sets.best is not None
    assert next(iter(sets.plans)) == sets.best["name"]
    timed = sorted(one["value"] for one in sets.tried if one["skipped"] and not one["screened"])
    assert sets.best["value"] == timed[0]
    assert all(plan.attention or plan.mlp for plan in sets.plans.values())


def test_the_empty_set_is_always_tried(on: forerun.Engine, answers: list[Recorded], tmp_path: Path) -> None:
    sets = found(on, answers, tmp_path)

    assert sets.tried[0]["name"] == "nothing"
    assert (sets.tried[0]["match_rate"], sets.tried[0]["cost"]) == (1.0, 1.0)


def test_the_curve_begins_with_nothing_left_out(on: forerun.Engine, answers: list[Recorded], tmp_path: Path) -> None:
    curve = found(on, answers, tmp_path).curve

    assert (curve[0]["skipped"], curve[0]["match_rate"], curve[0]["cost"]) == (0, 1.0, 1.0)
    assert curve[-1]["cost"] == pytest.approx(1 - 0.1 * curve[-1]["skipped"])


def test_where_time_ends_before_every_harm_is_known_the_known_ones_are_told(
    on: forerun.Engine, answers: list[Recorded], tmp_path: Path
) -> None:
    class Impatient(Scripted):
        """The time for harms is over once the third sublayer was tried."""

        asked = 0

        def now(self) -> float:
            self.asked += 1
            return 0.0 if self.asked < 12 else 60.0

    sets = found(on, answers, tmp_path, Impatient(), until=100.0)
    whole = found(on, answers, tmp_path / "whole")
    assert 0 < len(sets.harms) < 8
    assert sets.harms == {name: whole.harms[name] for name in sets.harms}
    assert sets.curve[0]["match_rate"] == 1.0
    assert sets.curve[-1]["skipped"] <= len(sets.harms)
    assert any(one["name"].startswith("greedy") for one in sets.tried)


def test_without_time_for_any_harm_there_is_none_and_no_search(
    on: forerun.Engine, answers: list[Recorded], tmp_path: Path
) -> None:
    sets = found(on, answers, tmp_path, until=0.0)

    assert (sets.harms, list(sets.curve), list(sets.tried)) == ({}, [], [])
    assert (sets.best, sets.reason) == (None, "no time was left")


def test_little_time_makes_it_read_fewer_answers(on: forerun.Engine, answers: list[Recorded], tmp_path: Path) -> None:
    class Slow(Scripted):
        """A clock that goes on by ten seconds whenever somebody looks."""

        def now(self) -> float:
            self.seconds += 10.0
            return self.seconds

    found(on, answers, tmp_path, machine=Slow(), until=200.0, trials=1)

    text = (tmp_path / "log.jsonl").read_text()
    assert '"name": "answers"' in text
    assert '"count": 4' not in text


def test_what_was_found_is_read_from_the_log(on: forerun.Engine, answers: list[Recorded], tmp_path: Path) -> None:
    first = found(on, answers, tmp_path)
    machine = Scripted()

    assert found(on, answers, tmp_path, machine) == first
    assert machine.measured == []


def test_the_study_of_other_answers_is_refused(on: forerun.Engine, answers: list[Recorded], tmp_path: Path) -> None:
    found(on, answers, tmp_path, about={"answers": "these"})
    (tmp_path / "log.jsonl").unlink()

    with pytest.raises(ValueError, match="holds a search that differs in answers; take another storage"):
        found(on, answers, tmp_path, about={"answers": "those"})


def test_a_model_that_cannot_skip_says_why(answers: list[Recorded], tmp_path: Path) -> None:
    refusing = forerun.load(tiny_model("llama"))
    refusing.runner.refuse_plans("its norms come after")

    sets = found(refusing, answers, tmp_path)

    assert "its norms come after" in sets.reason
    assert not sets.plans
