from math import exp, log
from random import Random

import pytest

from forerun.policies.logistic_regression import SUREST, LogisticRegression, Odds, RequestEffect, log_odds


def no_effect() -> RequestEffect:
    return RequestEffect(0.0, 1.0)


def learnt(outcomes: list[tuple[list[float], bool]], keep: float = 1.0) -> LogisticRegression:
    model = LogisticRegression([0.0, 0.0], [4.0, 4.0], keep)
    for known, happened in outcomes:
        model.learn(known, no_effect(), happened)
    return model


def test_log_odds_undo_the_logistic_function_and_are_cut_at_certainty() -> None:
    assert log_odds(1 / (1 + exp(-1.3))) == pytest.approx(1.3)
    assert (log_odds(1.0), log_odds(0.0)) == (SUREST, -SUREST)


def test_odds_that_are_known_exactly_are_a_probability_and_doubt_draws_it_to_a_half() -> None:
    assert Odds(log(3), 0.0).probability == pytest.approx(0.75)
    assert 0.5 < Odds(log(3), 4.0).probability < 0.7
    assert Odds(-800.0, 0.0).probability == pytest.approx(0.0)


def test_hope_counts_deviations_above_the_mean() -> None:
    assert Odds(0.0, 4.0).optimistic(1.0) == pytest.approx(1 / (1 + exp(-2)))
    assert Odds(0.3, 4.0).optimistic(0.0) == pytest.approx(1 / (1 + exp(-0.3)))


def test_one_outcome_moves_a_weight_as_computed_by_hand() -> None:
    """Variance 4, log-odds 0: p = 1/2, steepness 1/4, damping 1 + 4/4; the mean moves by 4 (1/2) / 2."""
    model = LogisticRegression([0.0], [4.0], 1.0)
    model.learn([1.0], no_effect(), True)
    found = model.of([1.0], no_effect())
    assert (found.mean, found.variance) == pytest.approx((1.0, 2.0))


def test_what_is_unknown_is_answered_by_the_first_weights() -> None:
    assert LogisticRegression([0.0, 2.0], [0.0, 0.0], 1.0).of(
        [1.0, log(3) / 2], no_effect()
    ).probability == pytest.approx(0.75)


@pytest.mark.parametrize("seed", range(4))
def test_it_finds_the_weights_that_made_the_outcomes(seed: int) -> None:
    random = Random(seed)
    outcomes = []
    for _ in range(3000):
        x = random.gauss(0, 1)
        outcomes.append(([1.0, x], random.random() < 1 / (1 + exp(1 - 1.5 * x))))
    model = learnt(outcomes)
    assert model.of([1.0, 0.0], no_effect()).mean == pytest.approx(-1.0, abs=0.2)
    assert model.of([1.0, 1.0], no_effect()).mean == pytest.approx(0.5, abs=0.25)


def test_evidence_narrows_where_it_was_found_and_little_elsewhere() -> None:
    model = learnt([([1.0, 0.0], n % 2 == 0) for n in range(200)])
    assert model.of([1.0, 0.0], no_effect()).variance < 0.1
    assert model.of([1.0, 1.0], no_effect()).variance > 3.5


def test_old_evidence_fades() -> None:
    outcomes = [([1.0, 0.0], n < 2000) for n in range(2080)]
    assert learnt(outcomes, keep=0.998).of([1.0, 0.0], no_effect()).probability < 0.2
    assert learnt(outcomes).of([1.0, 0.0], no_effect()).probability > 0.8


def test_a_thousand_equal_outcomes_leave_the_law_sound() -> None:
    model = learnt([([1.0, 3.0], True)] * 1000, keep=0.9998)
    found = model.of([1.0, 3.0], no_effect())
    assert found.variance > 0
    assert 0.98 < found.probability < 1


def test_an_effect_takes_its_share_of_a_surprise_and_wears_off() -> None:
    model, effect = LogisticRegression([3.0], [0.01], 1.0), RequestEffect(1.0, 0.9)
    for _ in range(12):
        model.learn([1.0], effect, False)
    assert effect.mean < -1
    assert effect.variance < 1
    assert model.of([1.0], no_effect()).probability > 0.9
    assert model.of([1.0], effect).probability < 0.7
    for _ in range(100):
        effect.drift()
    assert effect.mean == pytest.approx(0, abs=1e-3)
    assert effect.variance == pytest.approx(1.0)
