from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import forerun
from forerun.core.chance import Seeded
from forerun.core.forward import Rows
from forerun.core.values import ROOT, Context, Draft, Round, Step, Verdict
from forerun.drafters.base import DRAFTERS
from forerun.drafters.prediction import Prediction
from forerun.policies.base import confidence
from forerun.testing import tiny_model

from .test_suffix import steps

EXPECTED = [10, 11, 12, 13, 14, 15, 16, 17]


def asked(output: Sequence[int], prediction: Sequence[int] = EXPECTED) -> Context:
    context = Context([1, 2, 3], Seeded(0), prediction=tuple(prediction))
    context.extend(tuple(output))
    return context


def tokens(drafter: Prediction, context: Context) -> list[int]:
    return [step.tokens[0] for step in steps(drafter, context)]


def judge(drafter: Prediction, drafted: list[Step], accepted: int) -> None:
    verdict = Verdict(tuple(range(accepted)), tuple(step.tokens[0] for step in drafted[:accepted]) + (0,))
    rows = Rows(torch.zeros(len(drafted) + 1, 8), torch.zeros(len(drafted) + 1, 4))
    drafter.learn(Context([1], Seeded(0)), Round(verdict.tokens, Draft.of(drafted), verdict, 1), rows)


def test_an_output_that_begins_as_expected_is_followed_to_the_end() -> None:
    assert tokens(Prediction(0.01), asked([10])) == EXPECTED[1:]


def test_an_output_that_was_left_is_taken_up_where_it_matches_again() -> None:
    assert tokens(Prediction(), asked([10, 11, 90, 91, 15]))[:2] == [16, 17]


def test_an_output_that_has_nothing_of_it_drafts_nothing() -> None:
    assert tokens(Prediction(), asked([90, 91])) == []


def test_the_prompt_is_no_place_to_begin() -> None:
    context = Context([10, 11, 12], Seeded(0), prediction=tuple(EXPECTED))
    assert tokens(Prediction(), context) == []


def test_of_several_places_the_nearest_to_where_it_was_left_is_taken() -> None:
    expected = [10, 50, 11, 12, 60, 13, 14, 50, 15]
    drafter = Prediction(0.01)
    context = asked([10], expected)
    judge(drafter, steps(drafter, context), 0)
    context.extend((50,))
    assert tokens(drafter, context)[0] == 11
    late = Prediction(0.01)
    context = asked([10, 50, 11, 12, 60, 13], expected)
    judge(late, steps(late, context), 1)
    context.extend((14, 90, 50))
    assert tokens(late, context)[0] == 15


def test_without_a_prediction_nothing_is_drafted() -> None:
    assert tokens(Prediction(), asked([10, 11, 10], ())) == []


def test_tokens_are_chosen_and_chained_with_a_confidence_each() -> None:
    found = steps(Prediction(0.01), asked([10]), 2)
    assert [(step.parents, step.laws) for step in found] == [((ROOT,), (None,)), ((0,), (None,))]
    assert all(0 < confidence(step) < 1 for step in found)


def test_rejections_shorten_what_is_drafted_of_a_bad_prediction() -> None:
    drafter = Prediction(0.3)
    before = len(steps(drafter, asked([10])))
    for _ in range(20):
        judge(drafter, steps(drafter, asked([10])), 0)
    assert len(steps(drafter, asked([10]))) < before


@pytest.mark.parametrize("least", [0.0, 1.0, -3.0])
def test_a_least_probability_out_of_range_is_refused(least: float) -> None:
    with pytest.raises(ValueError, match=rf"above 0 and below 1, got {least}"):
        DRAFTERS.entry("prediction").build(None, least=least)  # type: ignore[arg-type]


@pytest.mark.parametrize("drafter", ["prediction", "lookup", "none"])
def test_any_drafter_follows_the_prediction_of_a_request_first_and_the_text_stays(drafter: str) -> None:
    model = tiny_model("llama")
    plain = forerun.load(model).generate([5, 6, 7], max_new_tokens=24)
    engine = forerun.load(model, drafter=drafter, policy="fixed", policy_options={"k": 8})
    right = engine.generate([5, 6, 7], max_new_tokens=24, prediction=plain.ids)
    wrong = engine.generate([5, 6, 7], max_new_tokens=24, prediction=[96] * 30)
    off = engine.generate([5, 6, 7], max_new_tokens=24, prediction=plain.ids, speculate=False)
    assert right.ids == wrong.ids == off.ids == plain.ids
    assert right.stats.tokens_per_round > 4
    assert off.stats.tokens_per_round == 1
