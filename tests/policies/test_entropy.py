from typing import Any

import pytest
import torch

from forerun.core.values import Step
from forerun.policies.entropy import build

from .rounds import copied, recorded


def test_it_stops_where_the_expected_acceptance_falls_below_the_bound() -> None:
    """1 - sqrt(0.2 * 1.8) = 0.4."""
    policy = build(acceptance=0.4, gamma=0.2)()
    assert not policy.should_stop([])
    assert not policy.should_stop([recorded(entropy=1.799)])
    assert policy.should_stop([recorded(entropy=1.801)])


def test_only_the_last_row_counts_and_not_its_token() -> None:
    policy = build()()
    assert not policy.should_stop([recorded(entropy=9.0), recorded(confidence=0.0, entropy=0.1)])


def test_the_entropy_is_the_rows() -> None:
    """ln 8 = 2.08 nats over eight equal tokens, ln 4 = 1.39 over four."""
    rows = [torch.zeros(1, 8), torch.zeros(1, 4)]
    assert [build()().should_stop([Step((0,), (-1,), (None,), row)]) for row in rows] == [True, False]


def test_a_copied_token_goes_on_up_to_max_steps() -> None:
    policy = build(acceptance=1.0, max_steps=3)()
    assert [policy.should_stop([copied()] * n) for n in range(5)] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acceptance": 1.1}, r"acceptance must be in \[0, 1\], got 1.1"),
        ({"gamma": -1.0}, "gamma must be at least 0 and finite, got -1.0"),
        ({"gamma": float("inf")}, "gamma must be at least 0 and finite, got inf"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
    ],
)
def test_an_option_out_of_range_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)
