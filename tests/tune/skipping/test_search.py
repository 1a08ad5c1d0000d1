"""The search against the exhaustive best and against random draws, and its rules."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import median

import pytest

from forerun.errors import UnsupportedOption
from forerun.models.packed.plan import LayerPlan
from forerun.tune.skipping.match_rate import Proxy, harms
from forerun.tune.skipping.search import FAR_WORSE, Budget, SkipSearch, Tried, WallClock
from forerun.tune.skipping.space import SkipSpace, starting_points

from ..redundant import COST, TARGET, redundant
from ..searching import SPACE, STARTS, price, search


def test_the_search_comes_within_5_percent_of_the_best_of_4096_sets_and_beats_random_draws(tmp_path: Path) -> None:
    made = redundant()
    starts = starting_points(made.space, harms(made.rate, made.space))
    searching = SkipSearch(made.space, made.price, starts, storage=tmp_path / "trials.log")
    best = searching.run(Budget(trials=40))

    assert len(made.prices) == 2**12
    assert len(searching.tried) == 40 <= 150
    assert best.value == made.prices[best.plan] <= 1.05 * made.least
    every = list(made.prices.values())
    # random draws get the 150 trials that are allowed
    assert best.value < median(min(random.Random(seed).choices(every, k=150)) for seed in range(10))
    assert made.least < 0.9 * made.prices[LayerPlan()]  # skipping pays on this model


def test_the_proxy_screens_what_is_far_worse_and_never_the_best(tmp_path: Path) -> None:
    made = redundant()
    paid: list[LayerPlan] = []

    def noting(plan: LayerPlan) -> float:
        paid.append(plan)
        return made.price(plan)

    starts = {"half": LayerPlan.skip(6, (3, 5), (3, 5)), "all": LayerPlan.skip(6, range(6), range(6))}
    proxy = Proxy(made.rate, COST, TARGET)
    searching = SkipSearch(made.space, noting, starts, storage=tmp_path / "trials.log", proxy=proxy, sampler="random")
    best = searching.run(Budget(trials=12))
    tried = searching.tried
    screened = [one for one in tried if one.screened]
    assert [one.plan for one in tried if not one.screened] == paid
    assert 0 < len(screened) < 11
    for one in screened:
        assert one.proxy == proxy(one.plan)
        assert one.value > FAR_WORSE * best.value
    assert not best.screened


@pytest.mark.parametrize("sampler", ["gp", "tpe", "random"])
def test_the_starting_points_come_first_and_the_empty_set_always(tmp_path: Path, sampler: str) -> None:
    ticks: list[Tried] = []
    search(tmp_path / "trials.log", sampler).run(Budget(trials=5), ticks.append)
    assert [one.name for one in ticks] == ["nothing", "all", "one", "", ""]
    assert [one.plan for one in ticks[:3]] == [LayerPlan(), *STARTS.values()]
    assert all(one.value == price(one.plan) for one in ticks)


def test_a_resumed_search_goes_on_and_draws_anew(tmp_path: Path) -> None:
    first = search(tmp_path / "trials.log")
    best = first.run(Budget(trials=8))
    second = search(tmp_path / "trials.log")
    assert second.best == best
    assert second.run(Budget(trials=8)) == best
    assert second.run(Budget(trials=14)).value <= best.value
    drawn = [one.plan for one in second.tried[3:]]
    assert len(drawn) == 11
    assert drawn[:5] != drawn[5:10]


def test_seconds_end_a_search_too(tmp_path: Path) -> None:
    searching = search(tmp_path / "trials.log")
    searching.run(Budget(seconds=0.05))
    assert searching.tried


@pytest.mark.parametrize("given", [{}, {"trials": 0}, {"seconds": -1.0}])
def test_a_budget_needs_something_to_spend(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a budget needs trials or seconds above 0"):
        Budget(**given)  # type: ignore[arg-type]


def test_an_unknown_sampler_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOption, match="sampler must be one of gp, tpe, random, got 'cma'"):
        search(tmp_path / "trials.log", "cma")


def test_a_study_of_something_else_is_refused(tmp_path: Path) -> None:
    search(tmp_path / "trials.log").run(Budget(trials=1))
    with pytest.raises(ValueError, match="holds a search that differs in layers"):
        SkipSearch(SkipSpace(4), price, {}, storage=tmp_path / "trials.log")
    with pytest.raises(ValueError, match="differs in model"):
        SkipSearch(SPACE, price, {}, storage=tmp_path / "trials.log", about={"model": "other"})


def test_no_trial_has_no_best(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no trial has ended yet"):
        _ = search(tmp_path / "trials.log").best


def test_of_equal_prices_the_smaller_set_is_the_best(tmp_path: Path) -> None:
    searching = SkipSearch(SPACE, lambda plan: 1.0, STARTS, storage=tmp_path / "trials.log", sampler="random")
    assert searching.run(Budget(trials=5)).plan == LayerPlan()


def test_the_wall_clock_gives_seconds_per_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = redundant()
    clock = WallClock(made.engine, [[1, 2, 3]], max_new_tokens=6)
    assert 0 < clock(LayerPlan.skip(6, (5,), (5,))) < 5
    with pytest.raises(ValueError, match="no answer had a second token"):
        WallClock(made.engine, [[1, 2, 3]], max_new_tokens=1)(LayerPlan())
