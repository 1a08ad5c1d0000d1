"""A design from a tiny target: everything measured, guessed, predicted, ranked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forerun.core.cost import Cost, Point
from forerun.design import run
from forerun.design.candidates import Candidate
from forerun.design.log import LoggedAnswer
from forerun.design.round_timing import Measured
from forerun.design.run import GOAL, Design, Setup, design
from forerun.design.throughput import DraftTimes, Overhead, best, needed, predict, rounds_of
from forerun.design.untrained import config_of
from forerun.engine.engine import Engine
from forerun.errors import UnsupportedOption
from forerun.models.files.draft_shape import DraftShape

ANSWER = LoggedAnswer(tuple(range(1, 30)), 6)


@pytest.fixture(scope="module")
def config(tiny: Path) -> Any:
    return config_of(str(tiny))


@pytest.fixture
def shape(config: Any) -> Callable[[str], DraftShape]:
    return lambda text: DraftShape.parse(text, config)


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine on which a draft's forward takes 1 ms a layer, and the target's 10 ms; the prefixes that were asked for."""
    asked: list[int] = []

    def measure(target: Any, drafts: Any, about: Any, prefix: int, tick: Any, repeats: int) -> Measured:
        asked.append(prefix)
        for _ in range(repeats + 1):
            tick()
        layers = {name: int(name.partition("layers=")[2].partition(",")[0] or 2) for name, _ in drafts}
        costs = {name: Cost(name, "r", "w", "draft", (Point(1, prefix, float(n)),)) for name, n in layers.items()}
        verify = Cost("tiny", "r", "w", "full", (Point(1, prefix, 10.0),))
        return Measured(verify, 10.0, {name: DraftTimes(cost, cost.ms(1)) for name, cost in costs.items()})

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "measure_overhead", lambda engine, prefix: Overhead(0.0))
    return asked


def made(engine: Engine, config: Any, **given: Any) -> Design:
    return design(engine, Setup(config=config, weights="float32", **given))


def test_shapes_are_ranked_by_what_they_give(
    engine: Engine, config: Any, shape: Callable[[str], DraftShape], priced: list[int]
) -> None:
    found = made(engine, config, shapes=[shape("layers=4"), shape("layers=1"), shape("layers=2")])
    speeds = [one.prediction.tokens_per_second for one in found.shapes]
    assert speeds == sorted(speeds, reverse=True)
    assert {one.shape.layers for one in found.shapes} == {1, 2, 4}


def test_each_shape_says_what_it_needs(
    engine: Engine, config: Any, shape: Callable[[str], DraftShape], priced: list[int]
) -> None:
    (one,) = made(engine, config, shapes=[shape("layers=2")]).shapes
    found = made(engine, config, shapes=[shape("layers=2")])
    assert one.times.later == 2.0
    assert one.break_even == needed(found.loop, one.times, 1.0)
    assert one.for_goal == needed(found.loop, one.times, GOAL)
    assert one.break_even is not None
    assert one.for_goal is not None
    assert one.break_even < one.for_goal


@pytest.mark.parametrize(("log", "answer"), [((), 128), ((LoggedAnswer((1,) * 10, 8),) * 2, 2)])
def test_reading_the_prompt_counts_by_the_logs_prompts_and_answers(
    engine: Engine,
    config: Any,
    shape: Callable[[str], DraftShape],
    priced: list[int],
    monkeypatch: pytest.MonkeyPatch,
    log: tuple[LoggedAnswer, ...],
    answer: int,
) -> None:
    free = run.measure

    def reading(*given: Any) -> Measured:
        found = free(*given)
        return replace(found, reading=dict.fromkeys(found.drafts, 62.0))

    monkeypatch.setattr(run, "measure", reading)
    found = made(engine, config, shapes=[shape("layers=2")], log=log)
    (one,) = found.shapes
    assert one.times.reading == pytest.approx(60.0 * (8 / found.prefix if log else 1) / answer)
    without = best(found.loop, replace(one.times, reading=0.0), lambda k: rounds_of(one.acceptance, k))
    assert one.prediction.speedup < without.speedup


def test_the_prediction_is_the_best_length_at_the_guessed_acceptance(
    engine: Engine, config: Any, shape: Callable[[str], DraftShape], priced: list[int]
) -> None:
    found = made(engine, config, shapes=[shape("layers=1")])
    (one,) = found.shapes
    assert one.acceptance == pytest.approx(found.estimate.at(0.25))
    assert one.prediction == best(found.loop, one.times, lambda k: rounds_of(one.acceptance, k))


def test_a_known_acceptance_is_that_of_its_shape(
    engine: Engine, config: Any, shape: Callable[[str], DraftShape], priced: list[int]
) -> None:
    known = [(shape("layers=2"), 0.42)]
    found = made(engine, config, shapes=[shape("layers=2"), shape("layers=1")], known=known)
    by_layers = {one.shape.layers: one.acceptance for one in found.shapes}
    assert by_layers[2] == pytest.approx(0.42)
    assert by_layers[1] < 0.42


def test_a_cut_vocabulary_loses_what_the_log_has_beyond_it(
    engine: Engine, config: Any, shape: Callable[[str], DraftShape], priced: list[int]
) -> None:
    log = [LoggedAnswer((1, 2, 3, *([7] * 9), 9), 3), LoggedAnswer((1, 2, 3, *([7] * 4), *([8] * 6)), 3)]
    shapes = [shape("layers=2"), shape("layers=2,vocabulary=1")]
    with_log = {one.shape.vocabulary: one for one in made(engine, config, shapes=shapes, log=log).shapes}
    assert with_log[1].covered == pytest.approx(0.4)
    assert with_log[1].acceptance == pytest.approx(0.4 * with_log[260].acceptance)
    without = made(engine, config, shapes=shapes)
    assert [one.covered for one in without.shapes] == [1.0, 1.0]


def test_candidates_are_ranked_with_the_rounds_of_the_log(
    engine: Engine, config: Any, tiny: Path, small: Path, priced: list[int]
) -> None:
    answer = engine.generate(list(range(1, 7)), max_new_tokens=20, ignore_eos=True).ids
    log = [LoggedAnswer((1, 2, 3, 4, 5, 6, *answer), 6)]
    candidates = [Candidate(str(small)), Candidate(str(tiny))]
    found = made(engine, config, candidates=candidates, configs=[config_of(str(small)), config], log=log)
    first, second = found.candidates
    assert first.candidate == candidates[1]
    assert first.on_log.draft.acceptance == 1.0
    assert first.prediction.tokens_per_second > second.prediction.tokens_per_second
    told = predict(found.loop, first.times, first.on_log.draft.rounds(first.prediction.k))
    assert told == first.prediction
    assert second.shape.layers == 2
    assert found.shapes == ()
    assert found.shape_costs is None


def test_a_candidate_is_a_point_of_the_guess(
    engine: Engine, config: Any, tiny: Path, shape: Callable[[str], DraftShape], priced: list[int]
) -> None:
    answer = engine.generate(list(range(1, 7)), max_new_tokens=20, ignore_eos=True).ids
    log = [LoggedAnswer((1, 2, 3, 4, 5, 6, *answer), 6)]
    found = made(
        engine, config, candidates=[Candidate(str(tiny))], configs=[config], log=log, shapes=[shape("layers=4")]
    )
    assert "1 measured draft;" in found.estimate.basis
    assert found.shapes[0].acceptance == pytest.approx(0.995)


def test_equal_shapes_are_compared_and_not_ranked(
    engine: Engine, config: Any, shape: Callable[[str], DraftShape], priced: list[int]
) -> None:
    deep, wide = shape("layers=3,width=16"), shape("layers=1")
    found = made(engine, config, shapes=[wide], equal=[deep, wide])
    assert [one.shape for one in found.shapes] == [wide]
    assert found.shape_costs is not None
    assert found.shape_costs.ratio == pytest.approx(3.0)
    assert "charges for depth" in found.shape_costs.sentence


def test_it_ticks_as_often_as_it_says(
    engine: Engine, config: Any, small: Path, shape: Callable[[str], DraftShape], priced: list[int]
) -> None:
    setup = Setup(
        config=config,
        weights="float32",
        shapes=[shape("layers=1")],
        candidates=[Candidate(str(small))],
        configs=[config_of(str(small))],
        log=[ANSWER, ANSWER],
    )
    ticks: list[None] = []
    design(engine, setup, lambda: ticks.append(None))
    assert len(ticks) == setup.ticks


def test_the_prefix_is_as_long_as_the_context_allows(
    engine: Engine, config: Any, shape: Callable[[str], DraftShape], priced: list[int]
) -> None:
    made(engine, config, shapes=[shape("layers=1")], prefix=100)
    made(engine, config, shapes=[shape("layers=1")], prefix=10_000)
    assert priced[0] == 100
    assert 400 < priced[1] < 512


def test_this_machine_is_measured_where_nothing_is_priced(
    engine: Engine, config: Any, small: Path, shape: Callable[[str], DraftShape]
) -> None:
    found = design(
        engine,
        Setup(
            config=config,
            weights="float32",
            shapes=[shape("layers=1"), shape("layers=3,width=16,vocabulary=50")],
            candidates=[Candidate(str(small), {"vocabulary": 50})],
            configs=[config_of(str(small))],
            log=[ANSWER],
            prefix=40,
            repeats=1,
        ),
    )
    assert found.loop.plain > 0
    assert len(found.shapes) == 2
    assert found.candidates[0].shape.vocabulary == 50
    assert all(one.times.later > 0 for one in (*found.shapes, *found.candidates))


def test_candidates_without_a_log_are_refused(config: Any) -> None:
    with pytest.raises(ValueError, match="candidates are judged by the target's answers: give a log"):
        Setup(config=config, weights="float32", candidates=[Candidate("small")])


def test_nothing_to_compare_is_refused(config: Any) -> None:
    with pytest.raises(ValueError, match="there is nothing to compare"):
        Setup(config=config, weights="float32")


def test_an_impossible_acceptance_is_refused(config: Any, shape: Callable[[str], DraftShape]) -> None:
    with pytest.raises(ValueError, match=r"an acceptance must be in \[0, 1\), got 1.2"):
        Setup(config=config, weights="float32", shapes=[shape("layers=1")], known=[(shape("layers=1"), 1.2)])


def test_a_shape_larger_than_the_target_is_refused(
    engine: Engine, config: Any, shape: Callable[[str], DraftShape]
) -> None:
    with pytest.raises(UnsupportedOption, match=r"a draft's layers must be in 1\.\.4"):
        made(engine, config, shapes=[shape("layers=9")])
