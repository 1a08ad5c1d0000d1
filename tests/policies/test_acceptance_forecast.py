from math import exp
from random import Random

import pytest

from forerun.policies.acceptance_forecast import AcceptanceForecast, Beliefs, Reading, read

from .rounds import copied, counted, recorded


def computed(*confidences: float) -> list[Reading]:
    return [read(recorded(confidence)) for confidence in confidences]


def taught(rounds: list[tuple[list[Reading], int]]) -> Beliefs:
    """Beliefs after so many requests of one round."""
    beliefs = Beliefs()
    for readings, accepted in rounds:
        AcceptanceForecast(beliefs).learn(readings, accepted)
    return beliefs


@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.9])
def test_a_confidence_is_believed_at_first_but_for_some_doubt(confidence: float) -> None:
    found = AcceptanceForecast(Beliefs()).acceptance(computed(confidence)[0])
    assert abs(found - 0.5) <= abs(confidence - 0.5)
    assert found == pytest.approx(confidence, abs=0.2)


def test_a_boastful_draft_is_found_out_by_its_first_rejections() -> None:
    beliefs = taught([(computed(0.9), 0)] * 12)
    assert AcceptanceForecast(beliefs).acceptance(computed(0.9)[0]) < 0.3


def test_confidence_is_read_through_what_it_was_worth() -> None:
    random, rounds = Random(0), []
    for _ in range(1500):
        confidence = random.uniform(0.02, 0.98)
        (reading,) = computed(confidence)
        rounds.append(([reading], int(random.random() < 1 / (1 + exp(2 - 2 * reading[1])))))
    forecast = AcceptanceForecast(taught(rounds))
    assert forecast.acceptance(computed(0.5)[0]) == pytest.approx(1 / (1 + exp(2)), abs=0.06)
    assert forecast.acceptance(computed(0.95)[0]) == pytest.approx(1 / (1 + exp(2 - 2.94)), abs=0.1)


def test_what_follows_a_sure_token_is_surer() -> None:
    rounds = [(computed(0.95, 0.9), 2)] * 60 + [(computed(0.3, 0.9), 1)] * 60
    forecast = AcceptanceForecast(taught(rounds))
    assert forecast.ahead(computed(0.95))[0].probability > forecast.ahead(computed(0.3))[0].probability + 0.3


def test_tokens_after_the_next_one_are_taken_for_typical() -> None:
    forecast = AcceptanceForecast(taught([(computed(0.9, 0.9, 0.9), 3)] * 40 + [(computed(0.2, 0.9), 1)] * 20))
    assert forecast.ahead(computed(0.95))[1].mean == forecast.ahead(computed(0.1))[1].mean


def test_beginning_a_draft_and_going_on_are_judged_apart() -> None:
    forecast = AcceptanceForecast(taught([(computed(0.5, 0.5, 0.5), 3)] * 20 + [(computed(0.5), 0)] * 40))
    assert forecast.ahead([])[0].probability < 0.5 < forecast.ahead(computed(0.5))[0].probability


def test_copied_and_computed_tokens_are_judged_apart() -> None:
    beliefs = taught([([read(copied())] * 3, 3), (computed(0.9), 0)] * 40)
    forecast = AcceptanceForecast(beliefs)
    assert forecast.acceptance(read(copied())) > 0.9
    assert forecast.acceptance(computed(0.9)[0]) < 0.2
    assert forecast.ahead([read(copied())])[0].probability > 0.8
    assert forecast.ahead(computed(0.9))[0].probability < 0.5


def test_counted_confidences_of_copied_tokens_are_read_and_judged_apart() -> None:
    sure, doubtful = read(counted(0.9)), read(counted(0.2))
    fresh = AcceptanceForecast(Beliefs())
    assert fresh.acceptance(sure) > 0.7 > 0.4 > fresh.acceptance(doubtful)
    beliefs = taught([([sure, sure], 2), ([doubtful], 0), (computed(0.9), 0)] * 40)
    forecast = AcceptanceForecast(beliefs)
    assert forecast.acceptance(sure) > 0.9
    assert forecast.acceptance(computed(0.9)[0]) < 0.2
    assert forecast.ahead([sure])[0].probability > forecast.ahead([doubtful])[0].probability + 0.1


def test_a_draft_not_yet_begun_is_judged_as_most_drafts_are() -> None:
    forecast = AcceptanceForecast(taught([([read(copied())], 1)] * 60))
    assert forecast.ahead([])[0].probability > 0.8
    forecast.learn(computed(0.5) * 1, 0)
    assert forecast.ahead([])[0].probability > 0.8


def test_a_hard_request_is_told_from_the_others_and_forgotten_in_the_next() -> None:
    beliefs = taught([(computed(0.8), 1), (computed(0.8), 1), (computed(0.8), 0)] * 100)
    hard = AcceptanceForecast(beliefs)
    usual = hard.acceptance(computed(0.8)[0])
    for _ in range(20):
        hard.learn(computed(0.8), 0)
    told = hard.acceptance(computed(0.8)[0])
    assert told < usual - 0.15
    assert AcceptanceForecast(beliefs).acceptance(computed(0.8)[0]) > told + 0.1
    for _ in range(300):
        hard.learn([], 0)
    assert hard.acceptance(computed(0.8)[0]) > told + 0.1


def test_tokens_after_a_rejected_one_teach_nothing() -> None:
    once, more = taught([(computed(0.8), 0)]), taught([(computed(0.8, 0.9, 0.1), 0)])
    assert AcceptanceForecast(once).acceptance(computed(0.6)[0]) == AcceptanceForecast(more).acceptance(
        computed(0.6)[0]
    )
