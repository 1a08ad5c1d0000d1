import pytest

from forerun.core.values import Step
from forerun.policies.fixed import build

from .rounds import chain


def test_it_stops_after_k_steps() -> None:
    policy = build(k=3)()
    assert [policy.should_stop(chain(*[0.1] * n)) for n in range(5)] == [False, False, False, True, True]


def test_it_counts_levels_and_not_nodes() -> None:
    level = Step((1, 2, 3), (-1, -1, -1), (None,) * 3)
    assert not build(k=2)().should_stop([level])


@pytest.mark.parametrize("k", [0, -1])
def test_less_than_one_step_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k must be at least 1, got {k}; for plain decoding take drafter 'none'"):
        build(k=k)
