from collections.abc import Sequence
from typing import Any

import pytest

from forerun.core.values import Step
from forerun.policies.bounded import Bounded, build
from forerun.policies.fixed import Fixed

from .rounds import chain, round_of


def test_the_inner_policy_decides_between_the_bounds() -> None:
    policy = build(inner="threshold", confidence=0.5, min_steps=2, max_steps=4)()
    assert not policy.should_stop([])
    assert not policy.should_stop(chain(0.1))
    assert policy.should_stop(chain(0.1, 0.1))
    assert not policy.should_stop(chain(0.1, 0.9, 0.9))
    assert policy.should_stop(chain(0.9, 0.9, 0.9, 0.9))


def test_no_least_number_lets_the_inner_policy_draft_nothing() -> None:
    assert not build(inner="fixed", k=3, min_steps=0)().should_stop([])


def test_the_inner_policy_leaves_out_what_is_beyond_the_least_number() -> None:
    class LeavesAllOut(Fixed):
        def leaves_out(self, steps: Sequence[Step]) -> bool:
            return True

    policy = Bounded(LeavesAllOut(3), 2, 4)
    assert [policy.leaves_out(chain(*[0.5] * n)) for n in (1, 2, 3)] == [False, False, True]


def test_the_inner_policy_learns() -> None:
    policy = build(inner="heuristic", k=2, max_steps=9)()
    steps = chain(0.5, 0.5)
    assert policy.should_stop(steps)
    policy.observe(steps, round_of(steps, accepted=2))
    assert not policy.should_stop(steps)
    assert policy.should_stop(chain(*[0.5] * 4))


@pytest.mark.parametrize(("least", "most"), [(-1, 5), (6, 5), (0, 0)])
def test_bounds_that_are_none_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match=f"got {least} and {most}"):
        build(min_steps=least, max_steps=most)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner": "nope"}, "unknown policy 'nope'; known: "),
        ({"inner": "fixed", "confidence": 0.3}, "policy 'fixed' has no option 'confidence'; its options: k"),
        ({"inner": "fixed", "k": 0}, "k must be at least 1"),
    ],
)
def test_the_inner_policys_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_bounds_within_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="inner must be another policy than 'bounded'"):
        build(inner="bounded")
