from __future__ import annotations

import json
import math

import pytest

from forerun.bench.comparison import Comparison, Side, spread
from forerun.bench.difference import Difference
from forerun.bench.measure import Run
from forerun.engine.answer import Result
from forerun.engine.stats import Stats


def run(
    ids: tuple[int, ...], seconds: float, rounds: int, drafted: int = 0, draft: float = 0, verify: float = 1
) -> Run:
    """A run of one answer whose first token came from the prefill."""
    stats = Stats()
    stats.tokens, stats._first_tokens, stats.rounds = len(ids), 1, rounds
    stats.drafted, stats.accepted = drafted, len(ids) - 1 - rounds
    stats.draft_seconds, stats.verify_seconds = draft, verify
    return Run((Result("", ids, None, stats, "length", 1),), seconds)


def comparison(speculative: Side, difference: Difference | None = None, **changes: object) -> Comparison:
    plain = Side(((run(tuple(range(13)), 4.0, 12, verify=3.6),), (run(tuple(range(13)), 6.0, 12, verify=3.6),)))
    given = {"sampled": False, "rounding_margin": 0.0, **changes}
    return Comparison(plain=plain, speculative=speculative, difference=difference, **given)  # type: ignore[arg-type]


@pytest.fixture
def fast() -> Side:
    """12 tokens after the first in 4 rounds; 12 draft steps of 0.1 s, verifications of 0.45 s; a plain step takes 0.3 s."""
    one = run(tuple(range(13)), 2.0, 4, drafted=12, draft=1.2, verify=1.8)
    return Side(((one,), (one,)))


def test_rates_are_decoded_tokens_a_second_by_repeat(fast: Side) -> None:
    assert comparison(fast).plain.rates == [3, 2]
    assert fast.rates == [6, 6]


def test_the_speedup_is_the_median_of_each_repeats_ratio(fast: Side) -> None:
    found = comparison(fast)

    assert found.ratios == [2, 3]
    assert found.speedup == 2.5
    assert found.as_dict()["speedup_quartiles"] == [2.25, 2.75]


def test_a_repeat_pools_its_questions() -> None:
    slow, quick = run(tuple(range(11)), 10.0, 10), run(tuple(range(11)), 2.5, 10)

    assert Side(((slow, quick),)).rates == [20 / 12.5]


def test_costs_are_in_plain_steps_and_predict_the_speedup(fast: Side) -> None:
    costs = comparison(fast).costs()

    assert costs["draft_cost_ratio"] == pytest.approx(0.1 / 0.3)
    assert costs["verify_cost_ratio"] == pytest.approx(0.45 / 0.3)
    assert costs["predicted_speedup"] == pytest.approx(3 / (3 * 0.1 / 0.3 + 1.5))
    assert costs["predicted_speedup_free_width"] == pytest.approx(3 / (3 * 0.1 / 0.3 + 1))


def test_without_drafts_there_is_no_draft_cost() -> None:
    one = run(tuple(range(13)), 4.0, 12, verify=3.6)
    costs = comparison(Side(((one,), (one,)))).costs()

    assert costs["draft_cost_ratio"] is None
    assert costs["predicted_speedup"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("margin", "changes", "verdict"),
    [
        (None, {}, "equal"),
        (1e-9, {}, "bug"),
        (0.4, {"rounding_margin": 0.5}, "rounding"),
        (0.6, {"rounding_margin": 0.5}, "bug"),
        (math.inf, {"rounding_margin": 0.5}, "bug"),
        (0.6, {"sampled": True}, "sampled"),
    ],
)
def test_a_verdict_weighs_the_margin(
    fast: Side, margin: float | None, changes: dict[str, object], verdict: str
) -> None:
    difference = None if margin is None else Difference(0, 0, 3, 1, 2, margin)
    found = comparison(fast, difference, **changes)

    assert found.verdict == verdict
    assert found.identical == (margin is None)


def test_the_match_rate_is_the_share_before_the_first_difference() -> None:
    other = run((*range(4), 99, *range(5, 13)), 2.0, 4, drafted=12, draft=1.2, verify=1.8)

    assert comparison(Side(((other,), (other,)))).match_rate == pytest.approx(4 / 13)


def test_the_dictionary_is_complete_and_goes_into_json(fast: Side) -> None:
    told = comparison(fast, Difference(0, 0, 3, 1, 2, 0.25)).as_dict()

    assert json.loads(json.dumps(told))["first_difference"]["margin"] == 0.25
    assert set(told) >= {
        "identical",
        "speedup",
        "plain_tokens_per_second",
        "speculative_tokens_per_second",
        "tokens_per_round",
        "discard_rate",
        "verification_rate",
        "predicted_speedup",
    }
    assert (told["tokens_per_round"], told["verification_rate"], told["decoded_tokens"]) == (
        3,
        pytest.approx(1 / 3),
        12,
    )
    assert told["discard_rate"] == pytest.approx(4 / 12)


def test_spread_gives_quartiles() -> None:
    assert spread([1, 2, 3, 4, 5]) == (2, 4)
    assert spread([2]) == (2, 2)
