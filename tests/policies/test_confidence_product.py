from random import Random

import pytest

from forerun.policies.confidence_product import build

from .rounds import chain, copied, round_of


def test_it_stops_where_the_product_falls_below_the_bound() -> None:
    policy = build(product=0.3)()
    steps = chain(0.9, 0.8, 0.5, 0.8)
    assert [policy.should_stop(steps[:n]) for n in range(5)] == [False, False, False, False, True]


def test_a_product_on_the_bound_goes_on() -> None:
    assert not build(product=0.25)().should_stop(chain(0.5, 0.5))


def test_it_stops_after_max_steps_however_sure() -> None:
    policy = build(max_steps=2)()
    assert [policy.should_stop([copied()] * n) for n in range(4)] == [False, False, True, True]


def test_each_round_begins_anew() -> None:
    policy = build(product=0.3)()
    steps = chain(0.5, 0.5)
    assert policy.should_stop(steps)
    policy.observe(steps, round_of(steps, 0))
    assert not policy.should_stop(chain(0.5))
    assert not policy.should_stop(chain(0.9, 0.9))


@pytest.mark.parametrize("seed", range(5))
def test_a_lower_bound_never_drafts_less(seed: int) -> None:
    random = Random(seed)
    steps = chain(*(random.random() for _ in range(20)))
    lengths = []
    for product in (0.9, 0.5, 0.3, 0.1, 0.0):
        policy = build(product=product)()
        lengths.append(next(n for n in range(21) if policy.should_stop(steps[:n])))
    assert lengths == sorted(lengths)
    assert lengths[-1] == 20


@pytest.mark.parametrize("product", [-0.1, 1.1, float("nan")])
def test_a_bound_that_is_no_probability_is_refused(product: float) -> None:
    with pytest.raises(ValueError, match=rf"product must be in \[0, 1\], got {product}"):
        build(product=product)


def test_less_than_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        build(max_steps=0)
