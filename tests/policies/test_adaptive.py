from typing import Any

import pytest

from forerun.core.policy import LengthPolicy
from forerun.policies.adaptive import build

from .rounds import chain, observe, recorded


def threshold(policy: LengthPolicy) -> float:
    """Found from outside, to six places."""
    low, high = 0.0, 1.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (low, middle) if policy.should_stop([recorded(middle, middle)]) is False else (middle, high)
    return low


def test_it_stops_after_a_token_below_the_threshold_and_at_the_greatest_length() -> None:
    policy = build(start=0.6, max_steps=3)()
    assert not policy.should_stop([])
    assert not policy.should_stop(chain(0.6))
    assert policy.should_stop(chain(0.9, 0.59))
    assert policy.should_stop(chain(0.9, 0.9, 0.9))


def test_the_threshold_moves_as_computed_by_hand() -> None:
    """A: 0.25, 0.625, 0.8125, 0.90625, 0.953125 after the five rounds; alpha 0.9."""
    policy = build(start=0.5, max_steps=4, alpha=0.9, epsilon=0.1, beta1=0.5, beta2=0.5, carry=False)()
    found = []
    for drafted, accepted in [(4, 2), (2, 2), (2, 2), (2, 2), (4, 4)]:
        observe(policy, drafted, accepted)
        found.append(threshold(policy))
    assert found == pytest.approx([0.55, 0.6, 0.65, 0.6, 0.6], abs=1e-5)


def test_the_papers_rule_lowers_the_threshold_after_a_full_draft_too() -> None:
    held, lowered = (build(start=0.5, max_steps=2, beta1=0.0, beta2=0.0, rule=rule)() for rule in ("code", "paper"))
    for policy in (held, lowered):
        observe(policy, 2, 2)
    assert threshold(held) == pytest.approx(0.5, abs=1e-5)
    assert threshold(lowered) == pytest.approx(0.49, abs=1e-5)


def test_at_alpha_itself_only_the_papers_rule_raises() -> None:
    for rule, wanted in [("code", 0.49), ("paper", 0.51)]:
        policy = build(start=0.5, max_steps=4, alpha=0.5, beta1=0.0, beta2=0.0, rule=rule)()
        observe(policy, 2, 1)
        assert threshold(policy) == pytest.approx(wanted, abs=1e-5)


def test_the_signal_is_the_drawn_tokens_or_the_rows_best() -> None:
    step = recorded(confidence=0.1, best=0.9)
    assert build(signal="token")().should_stop([step])
    assert not build(signal="best")().should_stop([step])


def test_the_threshold_stays_a_probability() -> None:
    policy = build(start=1.0, epsilon=1.0, beta2=0.0)()
    observe(policy, 4, 0)
    assert not policy.should_stop(chain(1.0))
    for _ in range(9):
        observe(policy, 4, 4)
    assert not policy.should_stop(chain(0.0))


def test_a_round_without_a_draft_moves_nothing() -> None:
    policy = build(start=0.5, beta2=0.0)()
    observe(policy, 0, 0)
    assert threshold(policy) == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize(("carry", "wanted"), [(True, 0.51), (False, 0.5)])
def test_the_next_request_goes_on_from_there_or_begins_anew(carry: bool, wanted: float) -> None:
    make = build(start=0.5, beta2=0.0, carry=carry)
    observe(make(), 4, 0)
    assert threshold(make()) == pytest.approx(wanted, abs=1e-5)


def test_two_engines_share_nothing() -> None:
    one, other = build(start=0.5, beta2=0.0), build(start=0.5, beta2=0.0)
    observe(one(), 4, 0)
    assert threshold(other()) == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.1}, r"alpha must be in \[0, 1\], got 1.1"),
        ({"start": float("nan")}, r"start must be in \[0, 1\], got nan"),
        ({"beta2": -0.1}, r"beta2 must be in \[0, 1\], got -0.1"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"rule": "book"}, "rule must be one of code, paper, got 'book'"),
        ({"signal": "mean"}, "signal must be one of token, best, got 'mean'"),
    ],
)
def test_an_option_out_of_range_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)
