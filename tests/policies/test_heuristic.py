import pytest

from forerun.core.policy import LengthPolicy
from forerun.policies.heuristic import build

from .rounds import chain, observe


def length(policy: LengthPolicy) -> int:
    return next(n for n in range(100) if policy.should_stop(chain(*[0.5] * n)))


def test_it_grows_by_two_when_everything_was_accepted_and_shrinks_by_one_otherwise() -> None:
    policy = build(k=4)()
    lengths = [length(policy)]
    for accepted in (4, 6, 3, 0):
        observe(policy, lengths[-1], accepted)
        lengths.append(length(policy))
    assert lengths == [4, 6, 8, 7, 6]


def test_it_stays_between_one_and_max_steps() -> None:
    policy = build(k=2, max_steps=5)()
    for _ in range(4):
        observe(policy, 3, 3)
    assert length(policy) == 5
    for _ in range(9):
        observe(policy, 3, 0)
    assert length(policy) == 1


def test_a_round_without_a_draft_teaches_nothing() -> None:
    policy = build(k=4)()
    observe(policy, 0, 0)
    assert length(policy) == 4


def test_a_draft_cut_short_and_fully_accepted_counts_as_accepted() -> None:
    policy = build(k=4)()
    observe(policy, 2, 2)
    assert length(policy) == 6


@pytest.mark.parametrize(("k", "most"), [(0, 5), (6, 5)])
def test_a_start_outside_of_the_range_is_refused(k: int, most: int) -> None:
    with pytest.raises(ValueError, match=rf"k must be in 1..max_steps, got k {k} and max_steps {most}"):
        build(k=k, max_steps=most)
