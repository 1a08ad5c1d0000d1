import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.core.law import Categorical, Filtered, Law, PointMass

WEIGHTS = st.lists(st.integers(0, 5), min_size=2, max_size=6).filter(any)


def categorical(weights: list[int]) -> Categorical:
    values = torch.tensor(weights, dtype=torch.float32)
    return Categorical(values / values.sum())


def test_a_point_mass_holds_everything_on_its_token() -> None:
    law = PointMass(3)
    assert [law.probability(token) for token in (2, 3, 4)] == [0, 1, 0]
    assert {law.quantile(u) for u in (0.0, 0.5, 1 - 2.0**-53)} == {3}


def test_a_point_mass_stays_itself_whatever_was_tried_in_its_place() -> None:
    law = PointMass(3)
    assert law.minus(PointMass(3)) is law
    assert law.minus(categorical([1, 1])) is law


def test_a_categorical_gives_nothing_to_tokens_outside_its_vocabulary() -> None:
    law = categorical([1, 3])
    assert [law.probability(token) for token in (-1, 0, 1, 2)] == [0, 0.25, 0.75, 0]


@given(WEIGHTS, WEIGHTS)
@settings(deadline=None)
def test_what_is_left_is_the_positive_part_of_the_difference(ours: list[int], theirs: list[int]) -> None:
    p, q = categorical(ours), categorical(theirs)
    left = [max(p.probability(token) - q.probability(token), 0.0) for token in range(len(ours))]
    rest = p.minus(q)
    if sum(left) < 1e-6:
        return
    for token, value in enumerate(left):
        assert rest.probability(token) == pytest.approx(value / sum(left), abs=1e-6)


def test_nothing_left_gives_the_law_itself() -> None:
    law = categorical([1, 2, 1])
    assert law.minus(categorical([1, 2, 1])) is law
    assert categorical([0, 1]).minus(PointMass(1)).probability(1) == 1


def test_a_rejected_choice_is_taken_out() -> None:
    rest = categorical([1, 2, 1]).minus(PointMass(1))
    assert [rest.probability(token) for token in range(3)] == [0.5, 0, 0.5]


def test_a_law_is_never_changed_by_what_is_taken_from_it() -> None:
    law = categorical([1, 2, 1])
    before = law.probs.clone()
    law.minus(categorical([2, 1, 1]))
    law.minus(PointMass(0))
    assert torch.equal(law.probs, before)


def test_only_known_laws_can_be_taken_from_a_categorical() -> None:
    class Other(Law):
        def probability(self, token: int) -> float:
            return 1.0

        def minus(self, other: Law) -> Law:
            return self

        def quantile(self, u: float) -> int:
            return 0

    with pytest.raises(TypeError, match="can't take a Other"):
        categorical([1, 1]).minus(Other())


def test_quantiles_cut_the_unit_interval_into_cells() -> None:
    law = categorical([0, 1, 0, 3, 0])
    assert [law.quantile(u) for u in (0.0, 0.2499, 0.25, 0.7, 1 - 2.0**-53)] == [1, 1, 3, 3, 3]


@given(WEIGHTS, st.floats(0, 1, exclude_max=True))
@settings(deadline=None)
def test_a_quantile_never_has_probability_zero(weights: list[int], u: float) -> None:
    law = categorical(weights)
    assert law.probability(law.quantile(u)) > 0


def test_the_last_quantile_of_a_large_vocabulary_is_a_token_of_it() -> None:
    logits = torch.randn(150_000, generator=torch.Generator().manual_seed(0)) * 4
    law = Categorical(logits.softmax(-1))
    assert law.probability(law.quantile(1 - 2.0**-53)) > 0
    assert law.quantile(0.0) == 0


def test_cells_of_a_large_vocabulary_have_the_size_of_their_probabilities() -> None:
    """A sum in float32 would move cells by more than the probability of a rare token."""
    probs = torch.full((100_000,), 1e-5)
    law = Categorical(probs)
    for token in (0, 33_333, 77_777, 99_999):
        assert law.quantile((token + 0.5) / 100_000) == token


def filtered(weights: list[int]) -> Filtered:
    kept = [token for token, weight in enumerate(weights) if weight]
    return Filtered(kept, [weights[token] / sum(weights) for token in kept])


@given(WEIGHTS, WEIGHTS, st.floats(0, 1, exclude_max=True))
@settings(deadline=None)
def test_a_law_of_few_tokens_is_the_same_law(ours: list[int], theirs: list[int], u: float) -> None:
    p, dense = filtered(ours), categorical(ours)
    for token in range(-1, len(ours) + 1):
        assert p.probability(token) == pytest.approx(dense.probability(token), abs=1e-6)
    assert p.probability(p.quantile(u)) > 0
    for other in (filtered(theirs), categorical(theirs), PointMass(min(theirs.index(max(theirs)), len(ours) - 1))):
        left = [max(p.probability(token) - other.probability(token), 0.0) for token in range(len(ours))]
        if sum(left) < 1e-6:
            continue
        for rest in (p.minus(other), dense.minus(other)):
            for token, value in enumerate(left):
                assert rest.probability(token) == pytest.approx(value / sum(left), abs=1e-5)


def test_tokens_that_the_other_vocabulary_lacks_lose_nothing_to_a_law_of_few_tokens() -> None:
    rest = categorical([1, 1]).minus(Filtered([1, 5], [0.5, 0.5]))
    assert [rest.probability(token) for token in range(2)] == [1, 0]


def test_of_few_tokens_nothing_left_gives_the_law_itself() -> None:
    law = filtered([1, 0, 3])
    assert law.minus(filtered([1, 0, 3])) is law
    assert [law.quantile(u) for u in (0.0, 0.2499, 0.25, 1 - 2.0**-53)] == [0, 0, 2, 2]
