from __future__ import annotations

import pytest

import forerun
from forerun import Engine
from forerun.engine.explanation import Explained
from forerun.testing import tiny_model

LOOP = [5, 6, 7, 8] * 6


@pytest.fixture(scope="module")
def plain() -> Engine:
    return forerun.load(tiny_model("llama"))


def test_each_round_after_the_first_token_is_told_of(plain: Engine) -> None:
    engine = plain.using("lookup", "cost")
    result = engine.generate(LOOP, max_new_tokens=20, explain=True)
    told = result.explained
    assert told is not None
    assert len(told) == result.stats.rounds
    assert sum(one.drafted for one in told) == result.stats.drafted > 0
    assert sum(one.accepted for one in told) == result.stats.accepted
    assert all(one.drafter == ("lookup" if one.drafted else "") for one in told)
    assert all(len(one.confidences) == one.drafted for one in told)
    assert all(one.expected_tokens is not None and one.expected_tokens >= 1 and one.time > 0 for one in told)


def test_nothing_is_told_unless_asked_for(plain: Engine) -> None:
    assert plain.using("lookup").generate(LOOP, max_new_tokens=4).explained is None


def test_a_policy_that_forecasts_nothing_expects_nothing(plain: Engine) -> None:
    told = plain.using("lookup", "fixed").generate(LOOP, max_new_tokens=8, explain=True).explained
    assert told
    assert {(one.expected_tokens, one.expected_time) for one in told} == {(None, None)}


def test_the_one_that_drafted_is_named_of_several(plain: Engine) -> None:
    engine = plain.using("cascade", "fixed", drafter_options={"of": "suffix,self", "exit_layer": 2})
    told = engine.generate(list(range(20, 30)), max_new_tokens=12, explain=True).explained
    assert told
    assert {one.drafter for one in told} <= {"suffix", "self", ""}
    assert "self" in {one.drafter for one in told}


def test_a_prediction_is_named_and_so_is_who_drafts_after_it(plain: Engine) -> None:
    answer = plain.generate([1, 2, 3], max_new_tokens=16).ids
    engine = plain.using("self", "fixed", drafter_options={"exit_layer": 2})
    told = engine.generate([1, 2, 3], max_new_tokens=16, prediction=answer[:8], explain=True).explained
    assert told
    assert {one.drafter for one in told} >= {"prediction", "self"}


def test_texts_and_answers_in_a_batch_are_the_same(plain: Engine) -> None:
    engine = plain.using("lookup", "fixed")
    prompts = [LOOP, [1, 2, 3]]
    told = engine.generate(prompts, max_new_tokens=12, explain=True)
    assert [one.ids for one in told] == [one.ids for one in engine.generate(prompts, max_new_tokens=12)]
    assert [sum(r.drafted for r in one.explained or ()) for one in told] == [one.stats.drafted for one in told]


@pytest.mark.parametrize(
    ("round", "line"),
    [
        (Explained("", True, (), 0, 0, 1.0, 1.0, 0.1), "held back"),
        (Explained("", False, (), 0, 0, None, None, 0.1), "nothing to draft"),
        (
            Explained("suffix", False, (0.9, 0.5), 2, 1, None, None, 0.1),
            "suffix: 2 drafted, 1 accepted; confidence 0.90 0.50",
        ),
        (
            Explained("suffix", False, (0.9,), 1, 1, 1.9, 1.1, 0.1),
            "suffix: 1 drafted, 1 accepted; confidence 0.90; expected 1.90 tokens in 1.10 plain rounds",
        ),
    ],
)
def test_a_round_is_told_in_words(round: Explained, line: str) -> None:
    assert round.line == line
    assert round.as_dict()["drafted"] == round.drafted
