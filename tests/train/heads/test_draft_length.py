from __future__ import annotations

import pytest

from forerun.train.heads.draft_length import THRESHOLDS, best_threshold, drafts_of, time_per_token

# the rule reads 0.9, 0.6, 0.3 after three tokens that are accepted with 0.8, 0.5, 0.5
ONE = ([0.9, 0.6, 0.3], [0.8, 0.5, 0.5])


@pytest.mark.parametrize(
    ("threshold", "length", "emitted"),
    [(0.1, 3, 1 + 0.8 + 0.4 + 0.2), (0.5, 3, 1 + 0.8 + 0.4 + 0.2), (0.7, 2, 1 + 0.8 + 0.4), (0.95, 1, 1.8)],
)
def test_time_is_what_a_round_takes_over_what_it_emits(threshold: float, length: int, emitted: float) -> None:
    drafts = drafts_of([ONE], depth=3)

    assert time_per_token(drafts, threshold, cost=0.1) == pytest.approx((length * 0.1 + 1) / emitted)


def test_at_least_so_many_tokens_are_drafted() -> None:
    drafts = drafts_of([ONE], depth=3)

    assert time_per_token(drafts, 0.95, cost=0.1, least=2) == pytest.approx(1.2 / 2.2)


def test_a_short_draft_ends_by_itself() -> None:
    drafts = drafts_of([([0.9], [0.7]), ONE], depth=3)

    assert drafts.ends.tolist() == [1, 3]
    assert time_per_token(drafts, 0.1, cost=0.1) == pytest.approx((1.1 + 1.3) / (1.7 + 2.4))


def test_long_drafts_are_cut_and_empty_ones_left_out() -> None:
    drafts = drafts_of([([], []), ONE], depth=2)

    assert drafts.values.shape == (1, 2)
    assert time_per_token(drafts, 0.1, cost=0.1) == pytest.approx(1.2 / 2.2)


def test_the_best_threshold_is_the_fastest() -> None:
    drafts = drafts_of([([0.9, 0.9, 0.9], [1.0, 1.0, 1.0]), ([0.9, 0.4, 0.9], [1.0, 0.0, 0.0])], depth=3)
    threshold, time = best_threshold(drafts, cost=0.3)

    assert 0.4 < threshold <= 0.9
    assert time == min(time_per_token(drafts, one, 0.3) for one in THRESHOLDS)
    assert time == pytest.approx((1.9 + 1.6) / (4 + 2))


def test_dear_drafts_are_short_and_cheap_ones_long() -> None:
    chains = [([0.9 - 0.1 * place for place in range(8)], [0.7] * 8)]
    cheap, dear = (best_threshold(drafts_of(chains, 8), cost)[0] for cost in (0.01, 0.5))

    assert cheap < dear


def test_no_draft_and_no_cost_are_refused() -> None:
    with pytest.raises(ValueError, match="no held-out draft to choose a threshold by"):
        drafts_of([([], [])], depth=3)
    with pytest.raises(ValueError, match="cost must be above 0 target forwards, got 0"):
        best_threshold(drafts_of([ONE], depth=3), 0)
