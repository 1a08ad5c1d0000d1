"""Screening against what drafters really draft: a trace of the same answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.cost import Cost, Point
from forerun.errors import UnsupportedOption
from forerun.tune.candidates import BRANCHED, DrafterConfig, branched_configs, lookup_configs, suffix_configs
from forerun.tune.screening import (
    DEPTH,
    LENGTHS,
    Screen,
    Screened,
    checked_step,
    positions_of_branched,
    positions_of_copying,
    positions_of_hybrid,
    positions_of_read,
    read_answers,
)
from forerun.tune.skipping.match_rate import Recorded

from .traced import adapter_of, draft_of, engine_with, model, traced
from .trees import branching

TARGET = Cost("tiny", "HFRunner", "float32", "full", (Point(1, 0, 10.0), Point(2, 0, 11.0), Point(13, 0, 22.0)))
LOOKUP = lookup_configs()[1]
DRAFT_MODEL = DrafterConfig("draft model", "draft-model", "draft_model")
EXIT = DrafterConfig("exit 3", "exit", "self", {"exit_layer": 3})


def copying(config: DrafterConfig) -> forerun.Engine:
    return forerun.load(model(), drafter=config.drafter, drafter_options=config.options)


def answers_of(trace: Any) -> list[Recorded]:
    return [Recorded((*one.prompt, *one.tokens), len(one.prompt)) for one in trace.answers]


def agreed(places: Any) -> list[list[int]]:
    return [[one.agreed for one in answer] for answer in places]


def agreed_in(trace: Any, depth: int = DEPTH) -> list[list[int]]:
    return [[min(one.agreed, depth) for one in answer.positions] for answer in trace.answers]


def test_an_exit_read_once_agrees_as_often_as_its_real_drafts(tmp_path: Path) -> None:
    engine = engine_with("self")
    trace = traced(engine, tmp_path / "trace.jsonl", depth=DEPTH)

    answers = answers_of(trace)
    places = positions_of_read(read_answers(engine, answers), answers)

    assert agreed(places) == agreed_in(trace)
    assert sum(map(sum, agreed(places))) > 0


def test_a_draft_model_read_once_agrees_as_often_as_its_real_drafts(tmp_path: Path) -> None:
    engine = engine_with("draft_model")
    trace = traced(engine, tmp_path / "trace.jsonl", "draft_model", depth=DEPTH)

    answers = answers_of(trace)

    assert agreed(positions_of_read(read_answers(engine, answers), answers)) == agreed_in(trace)


def test_confidence_is_that_of_the_real_drafts(tmp_path: Path) -> None:
    engine = engine_with("self")
    trace = traced(engine, tmp_path / "trace.jsonl", depth=DEPTH)

    answers = answers_of(trace)
    places = positions_of_read(read_answers(engine, answers), answers)

    for read, real in zip(places[0], trace.answers[0].positions, strict=True):
        for mine, theirs in zip(read.signals[: read.agreed], real.signals, strict=False):
            assert mine is not None
            assert theirs is not None
            assert mine.confidence == pytest.approx(theirs.confidence, abs=1e-4)


@pytest.mark.parametrize("config", lookup_configs(), ids=lambda config: config.name)
def test_lookup_is_replayed_exactly_without_a_model(config: DrafterConfig, tmp_path: Path) -> None:
    engine = forerun.load(model(), drafter="lookup", drafter_options=config.options)
    trace = traced(engine, tmp_path / "trace.jsonl", "lookup", depth=DEPTH)

    places = positions_of_copying(engine, answers_of(trace))

    assert agreed(places) == agreed_in(trace)
    assert [[bool(one.drafted) for one in answer] for answer in places] == [
        [bool(one.drafted) for one in answer.positions] for answer in trace.answers
    ]


def test_suffix_is_replayed_and_remembers_no_answer() -> None:
    answers = [Recorded((1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3), 6)] * 2
    first, second = positions_of_copying(copying(suffix_configs(())[0]), answers)

    assert [one.agreed for one in first] == [one.agreed for one in second] == [4, 3, 2, 1, 0]


def test_a_guess_that_begins_right_is_taken_to_save_a_forward() -> None:
    answers = [Recorded((1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3), 6)]
    right = positions_of_copying(copying(LOOKUP), answers)

    assert checked_step(right, 3.0) == pytest.approx(3.0 / (1 + 4 / 5))
    assert checked_step(positions_of_copying(copying(LOOKUP), [Recorded(tuple(range(20)), 8)]), 3.0) == 3.0
    assert checked_step([], 3.0) == 3.0


def test_a_hybrid_is_lookup_where_it_finds_something_and_else_the_other(tmp_path: Path) -> None:
    engine = engine_with("hybrid")
    trace = traced(engine, tmp_path / "trace.jsonl", "hybrid", depth=DEPTH)
    answers = answers_of(trace)

    first = positions_of_copying(engine_with("lookup"), answers)
    then = positions_of_read(read_answers(engine, answers), answers)

    assert agreed(positions_of_hybrid(first, then)) == agreed_in(trace)


def test_an_adapter_can_be_read(tmp_path: Path) -> None:
    target = model()
    folder = adapter_of(target, tmp_path, "state", 3)
    engine = forerun.load(target, drafter="exit_adapter", drafter_options={"adapter": str(folder)})
    trace = traced(engine, tmp_path / "trace.jsonl", "exit_adapter", depth=DEPTH)

    answers = answers_of(trace)

    assert [sum(line) > 0 for line in agreed(positions_of_read(read_answers(engine, answers), answers))] == [
        sum(line) > 0 for line in agreed_in(trace)
    ]


def test_a_drafter_without_rows_says_so() -> None:
    with pytest.raises(UnsupportedOption, match="can't read a text in one pass"):
        read_answers(engine_with("lookup"), [Recorded((5, 6, 7, 8), 3)])


def screened(said: list[int], step_ms: float, config: DrafterConfig = EXIT) -> Screened:
    """Of one answer of tokens 0 to 12, its first known; said are the guesses after it."""
    answers = [Recorded((9, 9, 9, *range(13)), 3)]
    read = {"said": [[0, *said]], "confidence": [[1.0] * 13]}
    return Screen(answers, TARGET).screened(config, positions_of_read(read, answers), step_ms)


def test_free_and_right_guesses_cost_wide_forwards_only() -> None:
    found = screened(list(range(1, 13)), 0.0)

    # 12 tokens after the first: eleven guesses and one of the target's own in a round of 12 rows
    assert found.speedup == pytest.approx(12 * 10 / TARGET.ms(12))
    assert (found.match_rate, found.found, found.draft_cost) == (1.0, 1.0, 0.0)


def test_the_price_of_guesses_is_paid_whether_they_are_right_or_not() -> None:
    # four tokens a round, in rounds of three guesses
    found = screened(list(range(1, 13)), 2.0)

    assert found.speedups[LENGTHS.index(3)] == pytest.approx(12 * 10 / (3 * (TARGET.ms(4) + 3 * 2.0)))
    assert found.draft_cost == 0.2


def test_wrong_guesses_are_slower_than_none() -> None:
    found = screened([0] * 12, 1.0)

    assert found.match_rate == 0
    assert all(value < 1 for value in found.speedups)
    assert found.best_length == 1


def test_streaks_count_as_they_come() -> None:
    scattered = screened([1, 0, 3, 0, 5, 0, 7, 0, 9, 0, 11, 0], 1.0)
    together = screened([1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0], 1.0)

    assert scattered.match_rate == together.match_rate
    assert scattered.best_length < together.best_length


def test_of_equal_lengths_the_shorter_one_is_best() -> None:
    found = Screened(EXIT, 1.0, 0.5, 0.1, (1.0, 1.2, 1.2, *[1.1] * (len(LENGTHS) - 3)))

    assert (found.best_length, found.speedup) == (2, 1.2)


def test_lookup_that_finds_nothing_is_plain_decoding() -> None:
    answers = [Recorded(tuple(range(20)), 8)]

    found = Screen(answers, TARGET).screened(LOOKUP, positions_of_copying(copying(LOOKUP), answers), 0.0)

    assert (found.found, found.match_rate) == (0.0, 0.0)
    assert found.speedups == pytest.approx([1.0] * len(LENGTHS))


def test_a_hybrid_pays_for_the_drafts_of_its_second_part_alone() -> None:
    answers = [Recorded((1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3), 6)]
    places = positions_of_copying(copying(LOOKUP), answers)
    screen = Screen(answers, TARGET)

    assert screen.screened(LOOKUP, places, 9.0).speedups == screen.screened(LOOKUP, places, 0.0).speedups


def test_what_was_screened_is_told_by_length() -> None:
    told = screened(list(range(1, 13)), 2.0).as_dict()

    assert told["drafter"] == {"name": "self", "exit_layer": 3}
    assert list(told["predicted_by_length"]) == [str(length) for length in LENGTHS]
    assert told["predicted_by_length"][str(told["best_length"])] == told["predicted_speedup"]


def test_a_noisy_draft_model_is_right_less_often_than_a_faithful_one() -> None:
    target = model()
    engine = forerun.load(target)
    answers = [Recorded((5, 6, 7, *engine.generate([5, 6, 7], max_new_tokens=16).ids), 3)]

    def right(noise: float) -> int:
        drafting = engine.using("draft_model", drafter_options={"model": draft_of(target, noise)})
        return sum(map(sum, agreed(positions_of_read(read_answers(drafting, answers), answers))))

    assert right(0.0) > right(0.3)


def tree_way(n: int, budget: int, least: float) -> DrafterConfig:
    (config, *_) = branched_configs(("tree",), [DRAFT_MODEL])
    return replace(config, options={**config.options, "n": n, "budget": budget, "min_confidence": least})


@pytest.mark.parametrize(("n", "least"), [(2, 0.0), (3, 0.002), (4, 0.01)])
def test_a_draft_model_read_once_has_the_paths_of_its_real_trees(tmp_path: Path, n: int, least: float) -> None:
    # so many nodes that which of them others take doesn't matter
    config = tree_way(n, 200, least)
    engine = branching(n=n, budget=200, min_confidence=least)
    trace = traced(engine, tmp_path / "trace.jsonl", "tree", depth=3, max_new_tokens=14)
    answers = answers_of(trace)

    read = read_answers(branching_inner(engine), answers)
    places = positions_of_branched(read, answers, config, None)

    estimated = [[min(len(one.branches.path), 3) for one in answer[:-1] if one.branches] for answer in places]
    real = [[len(one.branches.path) for one in answer.positions[:-1] if one.branches] for answer in trace.answers]
    assert estimated == real
    assert max(map(max, real)) > 1


def branching_inner(engine: forerun.Engine) -> forerun.Engine:
    def inner(target: Any) -> Any:
        return vars(engine.drafter(target))["inner"]

    return engine.using(inner)


def test_a_tree_without_branches_promises_what_its_chain_does(tmp_path: Path) -> None:
    engine = engine_with("draft_model")
    answers = answers_of(traced(engine, tmp_path / "trace.jsonl", "draft_model", depth=DEPTH))
    read = read_answers(engine, answers)
    screen = Screen(answers, TARGET)

    chain = screen.screened(DRAFT_MODEL, positions_of_read(read, answers), 2.0)
    config = tree_way(1, DEPTH, 0.0)
    tree = screen.screened(config, positions_of_branched(read, answers, config, None), 2.0)

    assert tree.speedups == pytest.approx(chain.speedups)
    assert (tree.found, tree.match_rate) == pytest.approx((chain.found, chain.match_rate))


def test_a_wider_tree_is_right_more_often_and_pays_for_its_rows(tmp_path: Path) -> None:
    engine = engine_with("draft_model")
    answers = answers_of(traced(engine, tmp_path / "trace.jsonl", "draft_model", depth=DEPTH))
    read = read_answers(engine, answers)

    def promised(n: int, row: float) -> Screened:
        config = tree_way(n, n, 0.0)
        points = (Point(1, 0, 10.0), Point(2, 0, 10.0 + row))
        screen = Screen(answers, Cost("tiny", "HFRunner", "float32", "full", points))
        return screen.screened(config, positions_of_branched(read, answers, config, None), 1.0)

    assert promised(4, 0.0).match_rate > promised(1, 0.0).match_rate
    assert promised(4, 0.0).speedup > promised(4, 5.0).speedup


def test_a_graph_leaves_out_what_is_far_less_likely_than_the_best(tmp_path: Path) -> None:
    engine = engine_with("draft_model")
    answers = answers_of(traced(engine, tmp_path / "trace.jsonl", "draft_model", depth=DEPTH))
    read = read_answers(engine, answers)
    tree, graph = (branched_configs((method,), [DRAFT_MODEL])[2] for method in BRANCHED)

    def nodes(config: DrafterConfig) -> int:
        own = replace(
            config, options={**config.options, "min_confidence": 0.0, **({"sibling": 0.9} if config is graph else {})}
        )
        places = positions_of_branched(read, answers, own, None)
        return sum(
            len(level.tokens) for each in places for one in each if one.branches for level in one.branches.levels
        )

    assert 0 < nodes(graph) < nodes(tree)
