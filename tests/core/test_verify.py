"""The walk of the verifier; that its law is the target's is shown in tests/law."""

from collections.abc import Sequence
from random import Random
from typing import final

import pytest
import torch

from forerun.core.chance import Chance, Seeded
from forerun.core.law import Categorical, Law, PointMass
from forerun.core.values import ROOT, Draft, Verdict
from forerun.core.verify import follow, verify


def chosen(tokens: Sequence[int], parents: Sequence[int] | None = None) -> Draft:
    nodes = range(ROOT, len(tokens) - 1) if parents is None else parents
    return Draft(tuple(tokens), tuple(nodes), (None,) * len(tokens))


def greedily(draft: Draft, best: Sequence[int]) -> Verdict:
    """The verdict where the target's choice after row i is best[i], which the short way gives as well."""
    verdict = verify(draft, lambda row, drafted: PointMass(best[row]), Seeded(0), 10)
    assert follow(draft, best) == verdict
    return verdict


@final
class Scripted(Chance):
    """Numbers in the order that they are asked for; what was asked is noted."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = list(numbers)
        self.asked: list[tuple[bytes, tuple[int, ...]]] = []

    def uniform(self, purpose: bytes, *key: int) -> float:
        self.asked.append((purpose, key))
        return self._numbers.pop(0)


def test_an_empty_draft_gives_the_targets_token() -> None:
    assert greedily(Draft(), [7]) == Verdict((), (7,))


def test_a_chain_is_followed_up_to_its_first_mistake() -> None:
    assert greedily(chosen([4, 5, 6]), [4, 5, 9, 0]) == Verdict((0, 1), (4, 5, 9))


def test_a_chain_without_a_mistake_gives_one_token_more() -> None:
    assert greedily(chosen([4, 5]), [4, 5, 6]) == Verdict((0, 1), (4, 5, 6))


def test_a_tree_is_followed_along_the_targets_own_choices() -> None:
    draft = chosen([4, 5, 6, 7, 8], [ROOT, ROOT, 0, 1, 1])
    assert greedily(draft, [5, 0, 8, 0, 0, 3]) == Verdict((1, 4), (5, 8, 3))


def test_of_two_equal_children_the_first_is_followed() -> None:
    assert greedily(chosen([4, 4, 5], [ROOT, ROOT, 1]), [4, 5, 0, 0]) == Verdict((0,), (4, 5))


def test_best_tokens_are_followed_as_point_masses_are_verified() -> None:
    random = Random(0)
    for _ in range(300):
        size = random.randrange(9)
        draft = chosen([random.randrange(3) for _ in range(size)], [random.randrange(-1, node) for node in range(size)])
        greedily(draft, [random.randrange(3) for _ in range(size + 1)])


def test_a_row_is_asked_for_only_when_the_walk_reaches_it_with_the_tokens_that_lead_to_it() -> None:
    asked: list[tuple[int, tuple[int, ...]]] = []

    def law_of_row(row: int, drafted: tuple[int, ...]) -> Law:
        asked.append((row, drafted))
        return PointMass({0: 5, 2: 8, 4: 1}[row])

    verify(chosen([4, 5, 6, 8], [ROOT, ROOT, 0, 1]), law_of_row, Seeded(0), 10)
    assert asked == [(0, ()), (2, (5,)), (4, (5, 8))]


def test_chosen_children_take_one_draw_a_node_keyed_by_its_position_as_in_plain_decoding() -> None:
    law = Categorical(torch.tensor([0.5, 0.5]))
    chance = Scripted(0.6, 0.1)
    verdict = verify(chosen([1, 1]), lambda row, drafted: law, chance, 10)
    assert verdict == Verdict((0,), (1, 0))
    assert chance.asked == [(b"token", (10,)), (b"token", (11,))]


def test_a_drawn_token_is_accepted_below_the_ratio_of_target_to_draft() -> None:
    p, q = Categorical(torch.tensor([0.25, 0.75])), Categorical(torch.tensor([0.5, 0.5]))
    draft = Draft((0,), (ROOT,), (q,))
    accepted = verify(draft, lambda row, drafted: p, Scripted(0.49, 0.0), 10)
    rejected = verify(draft, lambda row, drafted: p, Scripted(0.5, 0.0), 10)
    assert accepted == Verdict((0,), (0, 0))
    assert rejected == Verdict((), (1,))


def test_drawn_siblings_are_tried_in_their_order_each_with_a_coin_of_its_own() -> None:
    p = Categorical(torch.tensor([0.0, 0.0, 1.0]))
    q = Categorical(torch.tensor([0.4, 0.4, 0.2]))
    chance = Scripted(0.0, 0.0, 0.5, 0.0)
    verdict = verify(Draft((0, 1, 2), (ROOT,) * 3, (q,) * 3), lambda row, drafted: p, chance, 10)
    assert verdict == Verdict((2,), (2, 2))
    assert chance.asked[:3] == [(b"accept", (10, sibling)) for sibling in range(3)]


def test_a_token_that_its_own_law_never_draws_is_refused() -> None:
    q = Categorical(torch.tensor([1.0, 0.0]))
    draft = Draft((1,), (ROOT,), (q,))
    with pytest.raises(ValueError, match="draft node 0 holds token 1, which has probability 0 in its own law"):
        verify(draft, lambda row, drafted: q, Seeded(0), 10)


def test_a_drafted_token_outside_of_the_targets_vocabulary_is_rejected() -> None:
    p, q = Categorical(torch.tensor([1.0, 0.0])), Categorical(torch.tensor([0.0, 0.0, 1.0]))
    assert verify(Draft((2,), (ROOT,), (q,)), lambda row, drafted: p, Seeded(0), 10) == Verdict((), (0,))
    assert greedily(chosen([50]), [4, 0]) == Verdict((), (4,))
