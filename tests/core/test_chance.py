import math
from itertools import pairwise

import pytest
import torch

from forerun.core.chance import Seeded
from forerun.core.law import Categorical, PointMass

PURPOSES = (b"accept", b"token", b"draft")


def p_value(counts: torch.Tensor, expected: torch.Tensor, freedom: int) -> float:
    """Of Pearson's chi-square."""
    statistic = ((counts - expected) ** 2 / expected).sum()
    half = torch.tensor(freedom / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, statistic.double() / 2))


def numbers(purpose: bytes = b"token", seed: int = 5, count: int = 20_000) -> torch.Tensor:
    chance = Seeded(seed)
    return torch.tensor([chance.uniform(purpose, position) for position in range(count)], dtype=torch.float64)


def test_numbers_are_the_same_on_every_machine() -> None:
    chance = Seeded(1234)
    drawn = [chance.uniform(b"accept", 7, 0), chance.uniform(b"token", 7), chance.uniform(b"draft", 7, 5, 0)]
    assert drawn == [0.46534652787088626, 0.5917427588223839, 0.08964628401680941]
    law = Categorical(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    assert [chance.draw(law, position) for position in range(12)] == [1, 2, 2, 3, 2, 2, 3, 2, 1, 2, 1, 1]


def test_seeds_are_taken_modulo_two_to_the_64() -> None:
    assert Seeded(-1).uniform(b"token", 0) == Seeded(2**64 - 1).uniform(b"token", 0)
    assert Seeded(2**64).uniform(b"token", 0) == Seeded(0).uniform(b"token", 0)


def test_the_same_question_has_the_same_answer_in_any_order() -> None:
    one, other = Seeded(3), Seeded(3)
    keys = [(b"accept", 1, 0), (b"token", 1), (b"draft", 2, 1, 0)]
    assert [one.uniform(*key) for key in keys] == [other.uniform(*key) for key in reversed(keys)][::-1]


def test_every_part_of_a_key_counts() -> None:
    keys = [(purpose, *rest) for purpose in PURPOSES for rest in ((), (0,), (1,), (0, 1), (1, 0), (0, 0), (0, 0, 0))]
    seen = {Seeded(seed).uniform(*key) for seed in (0, 1) for key in keys}
    assert len(seen) == 2 * len(keys)


@pytest.mark.parametrize("purpose", PURPOSES)
def test_numbers_are_uniform(purpose: bytes) -> None:
    """Chi-square over 100 cells of 20,000 numbers, level 1e-4."""
    drawn = numbers(purpose)
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) < 1
    counts = torch.histc(drawn, 100, 0, 1)
    assert p_value(counts, torch.full((100,), 200.0), 99) > 1e-4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (numbers()[:-1], numbers()[1:]),
        (numbers(b"accept"), numbers(b"token")),
        (numbers(seed=5), numbers(seed=6)),
    ],
    ids=["neighbouring positions", "two purposes", "neighbouring seeds"],
)
def test_numbers_of_different_keys_are_independent(one: torch.Tensor, other: torch.Tensor) -> None:
    """Chi-square over the 100 cells of a 10 x 10 table, level 1e-4."""
    cells = (one * 10).long() * 10 + (other * 10).long()
    counts = torch.bincount(cells, minlength=100).double()
    assert p_value(counts, torch.full((100,), len(one) / 100), 99) > 1e-4


def test_coins_fall_as_often_as_their_ratio_says() -> None:
    chance = Seeded(8)
    for ratio in (0.05, 0.5, 0.9):
        heads = sum(chance.accept(ratio, position, 0) for position in range(10_000))
        assert abs(heads - 10_000 * ratio) < 4 * math.sqrt(10_000 * ratio * (1 - ratio))


def test_a_ratio_of_one_is_always_accepted_and_one_of_zero_never() -> None:
    chance = Seeded(8)
    assert all(chance.accept(ratio, position, 0) for position in range(1000) for ratio in (1.0, 7.5))
    assert not any(chance.accept(0.0, position, 0) for position in range(1000))


def test_a_draft_drawn_again_in_another_round_or_for_another_sibling_sees_another_number() -> None:
    law = Categorical(torch.full((1000,), 1e-3))
    drawn = [Seeded(1).propose(law, 9, start, sibling) for start in range(3) for sibling in range(3)]
    assert all(a != b for a, b in pairwise(sorted(drawn)))


def test_a_point_mass_needs_no_number() -> None:
    assert Seeded(1).draw(PointMass(42), 3) == 42
