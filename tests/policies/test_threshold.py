import pytest

from forerun.policies.threshold import build

from .rounds import chain


def test_it_stops_after_the_first_unlikely_token_and_keeps_it() -> None:
    policy = build(confidence=0.4)()
    assert not policy.should_stop([])
    assert not policy.should_stop(chain(0.9, 0.5))
    assert policy.should_stop(chain(0.9, 0.5, 0.3))


def test_only_the_last_token_counts() -> None:
    assert not build(confidence=0.4)().should_stop(chain(0.1, 0.9))


def test_a_token_on_the_threshold_goes_on() -> None:
    assert not build(confidence=0.5)().should_stop(chain(0.5))


def test_it_stops_after_max_steps_however_sure() -> None:
    policy = build(confidence=0.4, max_steps=2)()
    assert [policy.should_stop(chain(*[0.99] * n)) for n in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan")])
def test_a_threshold_that_is_no_probability_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match=rf"confidence must be in \[0, 1\], got {confidence}"):
        build(confidence=confidence)


def test_less_than_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        build(max_steps=0)
