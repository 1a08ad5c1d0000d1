from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from forerun.core.cost import Cost, Point
from forerun.tune.candidates import OFF, Candidate, DrafterConfig, branched_configs
from forerun.tune.machine import Sample
from forerun.tune.report import measured, report_of, summary
from forerun.tune.run import Outcome
from forerun.tune.screening import LENGTHS, Screened
from forerun.tune.skipping.match_rate import Recorded
from forerun.tune.skipping.skip_sets import SkipSets
from forerun.tune.trials import Standings

LOOKUP = Candidate(DrafterConfig("lookup 1..3", "lookup", "lookup"), "fixed", {"k": 3})
EXIT = Candidate(DrafterConfig("exit 3", "exit", "self", {"exit_layer": 3}), "fixed", {"k": 2})
DAMAGES = {"attention 0": 0.5, "mlp 0": 0.9, "attention 1": 0.05, "mlp 1": 0.2}
TRIED = {
    "name": "greedy 1",
    "skipped": 1,
    "screened": False,
    "value": 0.012,
    "match_rate": 0.95,
    "cost": 0.9,
    "attention": [1],
    "mlp": [],
    "layers": 2,
    "proxy": 1.2,
}
NOTHING = {**TRIED, "name": "nothing", "skipped": 0, "value": 0.015, "match_rate": 1.0, "cost": 1.0, "attention": []}
TARGET = Cost("tiny", "HFRunner", "float32", "full", (Point(1, 0, 10.0),))


def plain() -> Sample:
    return Sample(20, 0.2, 20, 0, 0, 0.0, 0.2)


def fast() -> Sample:
    """Ten rounds of two guesses, ten of them right: 1.2 plain steps to verify and 0.3 to draft."""
    return Sample(20, 0.15, 10, 20, 10, 0.03, 0.12)


def standings(one: Candidate, samples: Sequence[Sample]) -> Standings:
    return Standings((OFF, one), {OFF.name: [plain() for _ in samples], one.name: list(samples)})


def outcome(winner: Candidate, tried: Candidate, **changes: Any) -> Outcome:
    own = EXIT if tried == OFF else tried
    values: dict[str, Any] = {
        "winner": winner,
        "tried": tried,
        "screened": [
            Screened(LOOKUP.config, 0.4, 0.6, 0.0, tuple([1.1] * len(LENGTHS))),
            Screened(EXIT.config, 1.0, 0.7, 0.4, (1.2, *[0.9] * (len(LENGTHS) - 1))),
        ],
        "impossible": {"int4": "no small weights here"},
        "sets": SkipSets(harms=DAMAGES, tried=[NOTHING, TRIED]),
        "trials": standings(own, [fast() for _ in range(4)]),
        "held_out": None if tried == OFF else standings(own, [fast() for _ in range(3)]),
        "answers": [Recorded((1, 2, 3, 4), 3)],
        "target": TARGET,
        "spent": 90.0,
    }
    return Outcome(**{**values, **changes})


def test_the_summary_says_what_was_tried_and_what_won_by_how_much() -> None:
    said = list(summary(outcome(LOOKUP, LOOKUP)))

    assert said[0] == (
        "Tried: 2 ways to draft (lookup, exit), screened on 1 recorded answer; 1 candidate on the clock beside plain "
        "decoding, in 4 heats. 1.5 minutes in all."
    )
    assert said[1] == "Won: lookup 1..3, fixed k=3, 1.33 (1.33 to 1.33) x plain decoding on 3 held-out answers."


def test_the_summary_says_what_bounds_the_winner() -> None:
    (bound,) = (sentence for sentence in summary(outcome(LOOKUP, LOOKUP)) if sentence.startswith("What limits it"))

    assert "a round gives 2.00 tokens and takes 1.20 plain steps to verify and 0.30 to draft" in bound
    assert "With free drafts it would be 1.67 x, with free width 1.54 x, with every guess right 2.00 x" in bound
    assert bound.endswith("above all, too many guesses are wrong.")


TREE = Candidate(branched_configs(("tree",), [EXIT.config])[1], "fixed", {"k": 3})


def test_the_summary_says_what_trees_promise_beside_their_inner_drafter() -> None:
    screened = [*outcome(LOOKUP, LOOKUP).screened, Screened(TREE.config, 1.0, 0.8, 0.4, tuple([1.05] * len(LENGTHS)))]

    said = list(summary(outcome(LOOKUP, LOOKUP, screened=screened)))

    assert (
        "Drafting several continuations at once promised 1.05 x at best by screening (tree of exit 3, 3 a node, 8 in all), "
        "and a single one of the same drafter 1.20 x."
    ) in said


def test_without_trees_nothing_is_said_of_them() -> None:
    assert not [one for one in summary(outcome(LOOKUP, LOOKUP)) if "several continuations" in one]


def test_wrong_guesses_do_not_bound_a_tree() -> None:
    (bound,) = (sentence for sentence in summary(outcome(TREE, TREE)) if sentence.startswith("What limits it"))

    assert "every guess" not in bound
    assert bound.endswith("with free width 1.54 x: above all, drafting costs too much.")


def test_where_guesses_are_right_the_price_of_drafting_bounds() -> None:
    dear = Sample(20, 0.28, 10, 10, 10, 0.17, 0.11)

    said = " ".join(summary(outcome(LOOKUP, LOOKUP, held_out=standings(LOOKUP, [dear] * 3))))

    assert "above all, drafting costs too much." in said


def test_where_drafts_are_free_and_right_the_width_bounds() -> None:
    wide = Sample(20, 0.2, 10, 10, 10, 0.0, 0.2)

    said = " ".join(summary(outcome(LOOKUP, LOOKUP, held_out=standings(LOOKUP, [wide] * 3))))

    assert "above all, checking several tokens costs too much." in said


def test_self_speculation_that_loses_is_told_with_its_numbers() -> None:
    said = " ".join(summary(outcome(LOOKUP, LOOKUP)))

    assert (
        "the best plan, exit 3, predicts the model's next token in 70.0% of the positions at 0.40 of a plain step, which "
        "promises 1.20 x" in said
    )
    assert "single sublayer, of 4 tried, loses 5.0% of the tokens at least (attention 1), 50.0% in the middle" in said
    assert "and 90.0% at most (mlp 0)" in said
    assert (
        "Of the skip sets that were timed, the fastest was greedy 1: 1 sublayer left out, 95.0% of the tokens right at 0.90 "
        "of a plain forward. A token took it 1.20 plain steps." in said
    )


def test_skip_sets_that_were_not_worth_timing_are_told_too() -> None:
    screened = SkipSets(harms=DAMAGES, tried=[NOTHING, {**TRIED, "screened": True, "skipped": 2}])

    said = " ".join(summary(outcome(LOOKUP, LOOKUP, sets=screened)))

    assert (
        "Of the skip sets, 1 in all, none promised enough to be timed; the best was greedy 1: 2 sublayers left out, "
        "95.0% of the tokens right at 0.90 of a plain forward." in said
    )


def test_a_timed_set_is_told_before_one_that_only_promised() -> None:
    sets = SkipSets(tried=[{**TRIED, "name": "promise", "screened": True, "value": 0.001}, TRIED])

    assert sets.best == TRIED
    assert any("the fastest was greedy 1" in one for one in summary(outcome(LOOKUP, LOOKUP, sets=sets)))


def test_what_could_not_be_tried_is_told_by_its_reason() -> None:
    reasons = {f"exit {layer}": "no time was left" for layer in range(6)} | {"int4": "no small weights here."}
    sets = SkipSets(reason="no time was left")

    said = [
        one for one in summary(outcome(LOOKUP, LOOKUP, impossible=reasons, sets=sets)) if one.startswith("Not tried")
    ]

    assert said == [
        "Not tried: exit 0, exit 1, exit 2, exit 3 and 3 more (no time was left).",
        "Not tried: int4 (no small weights here).",
    ]


def test_skip_sets_that_nobody_asked_for_are_not_missed() -> None:
    found = outcome(LOOKUP, LOOKUP, impossible={}, sets=SkipSets(reason="not asked for"))

    assert not any(one.startswith("Not tried") for one in summary(found))


@pytest.mark.parametrize(("speedup", "words"), [(0.9, "doesn't pay here"), (1.2, "was not the best here")])
def test_self_speculation_pays_or_not_by_its_promise(speedup: float, words: str) -> None:
    found = outcome(LOOKUP, LOOKUP, screened=[Screened(EXIT.config, 1.0, 0.7, 0.4, tuple([speedup] * len(LENGTHS)))])

    assert any(words in sentence for sentence in summary(found))


def test_self_speculation_that_wins_needs_no_excuse() -> None:
    assert not any("part of the model" in sentence for sentence in summary(outcome(EXIT, EXIT)))


def test_off_in_the_trials_says_how_close_the_others_came() -> None:
    said = list(summary(outcome(OFF, OFF)))

    assert said[1].startswith(
        "Off won: the fastest of the others, exit 3, fixed k=2, came to 1.33 (1.33 to 1.33) x plain"
    )


def test_off_on_held_out_prompts_says_who_was_ahead_before() -> None:
    said = list(summary(outcome(OFF, LOOKUP)))

    assert "lookup 1..3, fixed k=3 was ahead in the trials, but on 3 held-out answers" in said[1]


def test_off_without_a_rival_says_so() -> None:
    alone = outcome(OFF, OFF, trials=Standings((OFF,)), screened=[])

    assert list(summary(alone))[1] == "Off won: no other method could be tried."


def test_the_report_is_plain_json() -> None:
    told = report_of(outcome(LOOKUP, LOOKUP))

    assert json.loads(json.dumps(told)) == told
    assert told["winner"] == "lookup 1..3, fixed k=3"
    assert [one["name"] for one in told["trials"]] == ["off", "lookup 1..3, fixed k=3"]
    assert told["not_screened"] == {"int4": "no small weights here"}


def test_the_report_lists_what_was_screened_from_the_best_on() -> None:
    assert [one["name"] for one in report_of(outcome(LOOKUP, LOOKUP))["screened"]] == ["exit 3", "lookup 1..3"]


def test_the_grid_holds_every_exit_with_every_length() -> None:
    told = report_of(outcome(LOOKUP, LOOKUP))

    assert [(cell["exit_layer"], cell["length"]) for cell in told["grid"]] == [(3, length) for length in LENGTHS]
    assert told["sweet_spot"] == {"exit_layer": 3, "length": 1, "speedup": 1.2}


def test_without_exits_there_is_no_sweet_spot() -> None:
    assert report_of(outcome(OFF, OFF, screened=[]))["sweet_spot"] is None


def test_a_systems_figures_are_those_of_the_held_out_prompts() -> None:
    told = measured(outcome(LOOKUP, LOOKUP))

    assert told["speedup"] == pytest.approx(4 / 3)
    assert told["plain_tokens_per_second"] == pytest.approx(100)
    assert told["tokens_per_second"] == pytest.approx(20 / 0.15)
    assert (told["prompts"], told["tokens_per_round"]) == (3, 2.0)


def test_off_has_no_figures() -> None:
    assert measured(outcome(OFF, OFF)) == {}
    assert measured(outcome(OFF, LOOKUP)) == {}


def test_costs_are_in_plain_steps(tmp_path: Path) -> None:
    off, lookup = report_of(outcome(LOOKUP, LOOKUP))["trials"]

    assert (off["verify_cost"], off["draft_cost"]) == (pytest.approx(1.0), 0.0)
    assert (lookup["verify_cost"], lookup["draft_cost"]) == (pytest.approx(1.2), pytest.approx(0.3))
    assert lookup["acceptance"] == 0.5
