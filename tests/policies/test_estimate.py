from random import Random

import pytest

from forerun.policies.estimate import EDGES, Acceptance, confidence_bin


def test_what_was_never_seen_is_the_prior() -> None:
    assert Acceptance(prior=0.6).of(["any", "fine"]) == pytest.approx(0.6)


def test_a_key_is_a_beta_posterior_as_computed_by_hand() -> None:
    counts = Acceptance(prior=0.5)
    for accepted in (True, True, True, False):
        counts.learn(["any"], accepted)
    assert counts.of(["any"]) == pytest.approx((2 * 0.5 + 3) / (2 + 4))
    assert counts.of(["any", "fine"]) == pytest.approx(4 / 6)


def test_a_fine_key_moves_away_from_its_coarse_one_with_its_own_evidence() -> None:
    counts = Acceptance(strength=16)
    for n in range(400):
        counts.learn(["any", n % 2], accepted=n % 2 == 0)
    assert counts.of(["any"]) == pytest.approx(0.5, abs=0.01)
    assert counts.of(["any", 0]) > 0.95
    assert counts.of(["any", 1]) < 0.05
    assert counts.of(["any", "new"]) == pytest.approx(0.5, abs=0.01)


def test_old_evidence_fades() -> None:
    counts = Acceptance(window=50)
    for accepted in (*[True] * 1000, *[False] * 150):
        counts.learn(["any"], accepted)
    assert counts.of(["any"]) < 0.1


def test_optimism_shrinks_with_evidence_and_never_exceeds_certainty() -> None:
    counts = Acceptance(prior=0.5)
    extra = []
    for _ in range(3):
        extra.append(counts.of(["any"], optimism=1.0) - counts.of(["any"]))
        for n in range(40):
            counts.learn(["any"], n % 2 == 0)
    assert extra == sorted(extra, reverse=True)
    assert extra[0] > 0.2
    assert extra[2] < 0.08
    assert counts.of(["any"], optimism=99.0) == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_an_estimate_is_a_probability_near_the_truth(seed: int) -> None:
    random, counts = Random(seed), Acceptance()
    truth = random.random()
    for _ in range(900):
        counts.learn(["any", "fine"], random.random() < truth)
    assert counts.of(["any", "fine"]) == pytest.approx(truth, abs=0.07)


def test_bins_are_finest_near_certainty() -> None:
    assert [confidence_bin(c) for c in (0.0, 0.1, 0.6, 0.9, 0.97, 1.0)] == [0, 1, 3, 5, 6, len(EDGES)]
