"""Whole runs on a tiny model, on a machine whose times are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.models.files.adapter import write_adapter
from forerun.testing import save_tiny, tiny_adapter, tiny_model, tiny_tokenizer
from forerun.tune import run as module
from forerun.tune.candidates import BRANCHED, METHODS, OFF, Candidate, Chosen, DrafterConfig
from forerun.tune.report import report_of
from forerun.tune.run import HOPELESS, Outcome
from forerun.tune.setup import split
from forerun.tune.trials import FEWEST_HEATS

from .tuning import PROMPTS, Killed, Scripted, engine, tuned

CHEAP = {"exit 3": 0.2, "exit": 30.0}
DEAR = {"": 100.0}


@pytest.fixture(scope="module")
def on() -> forerun.Engine:
    return engine()


def told(outcome: Outcome) -> dict[str, Any]:
    return {name: value for name, value in report_of(outcome).items() if name not in ("spent_seconds", "summary")}


def test_a_cheap_way_that_is_often_right_wins(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(CHEAP), chosen=Chosen(("exit",)))

    assert outcome.winner.config.name == "exit 3"
    assert outcome.winner == outcome.tried
    assert outcome.judged is not None
    assert outcome.judged.low > 1


def test_off_wins_where_everything_costs_more_than_it_gives(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(DEAR, row=100.0))

    assert outcome.winner == OFF
    assert outcome.held_out is None


def test_the_winner_is_judged_on_prompts_that_it_was_not_tuned_on(on: forerun.Engine, tmp_path: Path) -> None:
    seen: dict[str, set[tuple[int, ...]]] = {"trial": set(), "held-out": set()}
    stage = "trial"

    def told_of(what: str) -> None:
        nonlocal stage
        stage = "held-out" if what.startswith("held-out") else stage

    class Watching(Scripted):
        def answer(self, engine: forerun.Engine, candidate: str, ids: Any, max_new_tokens: int) -> Any:
            seen[stage].add(tuple(ids))
            return super().answer(engine, candidate, ids, max_new_tokens)

    tuned_on, held_out = split(PROMPTS, 0)
    tuned(on, tmp_path, Watching(CHEAP), told=told_of, chosen=Chosen(("exit",)))

    # the first heat on held-out prompts is told after it
    assert seen["trial"] <= {tuple(ids) for ids in [*tuned_on, held_out[0]]}
    assert seen["held-out"] <= {tuple(ids) for ids in held_out}
    assert seen["held-out"]


def test_a_winner_of_the_trials_that_held_out_prompts_do_not_confirm_loses_to_off(
    on: forerun.Engine, tmp_path: Path
) -> None:
    held_out = {tuple(ids) for ids in split(PROMPTS, 0)[1]}

    class Misleading(Scripted):
        def answer(self, engine: forerun.Engine, candidate: str, ids: Any, max_new_tokens: int) -> Any:
            sample = super().answer(engine, candidate, ids, max_new_tokens)
            slow = tuple(ids) in held_out and candidate != OFF.name
            return replace(sample, seconds=9.0) if slow else sample

    outcome = tuned(on, tmp_path, Misleading(CHEAP), chosen=Chosen(("exit",)))

    assert outcome.tried != OFF
    assert outcome.winner == OFF
    assert outcome.judged is not None
    assert outcome.judged.value < 1


def test_every_method_is_screened_or_said_why_not(tmp_path: Path) -> None:
    target = forerun.load(str(save_tiny(tmp_path / "target")))
    draft = str(save_tiny(tmp_path / "draft", num_hidden_layers=1))
    chosen = Chosen(METHODS, (draft,), (str(tmp_path / "no-adapter"),))

    outcome = tuned(target, tmp_path, Scripted(), chosen=chosen)

    methods = {one.config.method for one in outcome.screened}
    assert methods | {"adapter", "carved"} == set(METHODS)
    assert any("no-adapter" in name for name in outcome.impossible)


def test_guesses_need_suffix_and_a_drafter_that_checks_them(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(), chosen=Chosen(("suffix", "lookup", "guessed")))

    assert outcome.impossible == {
        "guessed": "guesses need suffix and one of exit, skip, carved, draft-model among the methods that run"
    }


def test_weights_that_a_model_cannot_have_are_told_and_not_tried(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(), chosen=Chosen(("lookup", "carved")))

    assert set(outcome.impossible) == {"int4", "int8"}
    assert "transformers' own modules" in outcome.impossible["int4"]


def test_an_adapter_of_another_model_is_told_and_does_not_end_the_run(tmp_path: Path) -> None:
    target, other = save_tiny(tmp_path / "target"), tiny_model("llama", seed=1, vocab_size=len(tiny_tokenizer()))
    write_adapter(tiny_adapter(other, 2, "state"), tmp_path / "adapter")

    outcome = tuned(
        forerun.load(str(target)),
        tmp_path,
        Scripted(),
        chosen=Chosen(("lookup", "adapter"), (), (str(tmp_path / "adapter"),)),
    )

    (reason,) = outcome.impossible.values()
    assert "trained for another model" in reason
    assert {one.config.method for one in outcome.screened} == {"lookup"}


def test_ways_that_promise_too_little_are_not_tried_on_the_clock(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(CHEAP))

    hopeless = {one.config.name for one in outcome.screened if one.speedup < HOPELESS}
    assert hopeless
    assert not hopeless & {one.config.name for one in outcome.trials.candidates}


def test_trees_and_graphs_are_tried_of_what_promises_something_by_itself(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted({"exit 3": 0.2, "exit": 30.0, "": 0.2}), chosen=Chosen(("exit", *BRANCHED)))

    branched = [one for one in outcome.screened if one.config.method in BRANCHED]
    assert {one.config.parts[0].name for one in branched} == {"exit 3"}
    assert {one.config.method for one in branched} == set(BRANCHED)
    tried = [one.config.method for one in outcome.trials.candidates if one.config.method in BRANCHED]
    assert len(tried) == len(set(tried)), "one of each at most"
    assert tried
    assert not set(outcome.impossible) & {"trees", "graphs"}


def test_trees_of_hopeless_drafters_are_not_screened_and_it_is_said(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(DEAR, row=100.0), chosen=Chosen(("lookup", "exit", "tree")))

    assert not [one for one in outcome.screened if one.config.method in BRANCHED]
    assert set(outcome.impossible) == {"trees"}
    assert (
        "no drafter that can be branched promised 0.85 x plain decoding by itself: the best, exit"
        in (outcome.impossible["trees"])
    )


def test_without_a_drafter_that_has_a_law_there_is_nothing_to_branch(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(), chosen=Chosen(("lookup", "graph")))

    assert outcome.impossible["graphs"].endswith("none was screened")


def test_a_short_budget_still_comes_to_a_decision(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(CHEAP), budget=1.0)

    assert outcome.trials.heats == FEWEST_HEATS
    assert "no time was left" in outcome.impossible.values()
    assert len(outcome.trials.candidates) <= 3


def test_a_long_budget_is_kept(on: forerun.Engine, tmp_path: Path) -> None:
    machine = Scripted({}, row=0.0)

    outcome = tuned(on, tmp_path, machine, budget=150.0)

    # a heat under way may end after it
    assert outcome.spent <= 150 + len(outcome.trials.candidates)


def test_with_skip_sets_the_harms_and_the_search_are_kept(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(), chosen=Chosen(("skip",)), set_trials=6)

    assert len(outcome.sets.harms) == 8
    assert [one["name"] for one in outcome.sets.tried][:2] == ["nothing", "greedy 1"]
    assert outcome.sets.best is not None
    assert [one["skipped"] for one in outcome.sets.curve] == [0, 1, 2, 3, 4, 5]
    assert {one.config.method for one in outcome.screened} == {"skip"}


def test_a_model_whose_sublayers_cannot_be_left_out_is_tuned_without(tmp_path: Path) -> None:
    refusing = forerun.load(tiny_model("llama"))
    refusing.runner.refuse_plans("its norms come after")

    outcome = tuned(refusing, tmp_path, Scripted(), chosen=Chosen(("lookup", "exit", "skip")))

    assert "its norms come after" in outcome.sets.reason
    assert {one.config.method for one in outcome.screened} == {"lookup"}
    assert "its norms come after" in outcome.impossible["exit 1"]


def test_without_anything_to_try_off_wins(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(), chosen=Chosen(("adapter",)))

    assert outcome.winner == OFF
    assert outcome.trials.heats == 0


KILLABLE = Chosen(("exit", "skip"))
STARTS = 6  # all that a search begins with on four layers: what comes next is drawn


def fixed_lengths(configs: Sequence[tuple[DrafterConfig, int]], count: int) -> list[Candidate]:
    """Without the rules that read the real clock: with them no run does the same twice."""
    return [Candidate(config, "fixed", {"k": length}) for config, length in configs][:count]


@pytest.fixture(scope="module")
def undisturbed(on: forerun.Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Scripted]:
    machine, folder = Scripted(CHEAP), tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setattr(module, "with_rules", fixed_lengths)
        return tuned(on, folder, machine, chosen=KILLABLE, set_trials=STARTS), machine


@pytest.mark.parametrize("dies_at", [0, 1, 2, 4, 7, 10, 15, 21, 30, 40])
def test_a_killed_run_goes_on_and_loses_only_the_measurement_under_way(
    on: forerun.Engine,
    undisturbed: tuple[Outcome, Scripted],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dies_at: int,
) -> None:
    monkeypatch.setattr(module, "with_rules", fixed_lengths)
    expected, whole = undisturbed
    first, second = Scripted(CHEAP, dies_at=dies_at), Scripted(CHEAP)

    with pytest.raises(Killed):
        tuned(on, tmp_path, first, chosen=KILLABLE, set_trials=STARTS)
    outcome = tuned(on, tmp_path, second, chosen=KILLABLE, set_trials=STARTS)

    assert (outcome.winner, outcome.tried) == (expected.winner, expected.tried)
    assert told(outcome)["screened"] == told(expected)["screened"]
    under_way = max(len(expected.trials.candidates), 6)
    assert len(whole.measured) <= len(first.measured) + len(second.measured) <= len(whole.measured) + under_way


def test_a_run_that_ended_is_not_measured_again(on: forerun.Engine, tmp_path: Path) -> None:
    first = tuned(on, tmp_path, Scripted(CHEAP))
    again = Scripted(CHEAP)

    second = tuned(on, tmp_path, again)

    assert again.measured == []
    assert told(second) == told(first)


def test_what_a_plain_step_takes_beside_its_forward_counts(on: forerun.Engine, tmp_path: Path) -> None:
    outcome = tuned(on, tmp_path, Scripted(beside=5.0), chosen=Chosen(("lookup",)))

    assert outcome.target.ms(1) == pytest.approx(15.0)
    assert outcome.target.ms(2) == pytest.approx(16.0)


def test_too_few_prompts_are_refused(on: forerun.Engine, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"at least 4 different prompts of 3 tokens or more.*got 2"):
        tuned(on, tmp_path, Scripted(), prompts=[PROMPTS[0], PROMPTS[0], PROMPTS[1], [1, 2]])
