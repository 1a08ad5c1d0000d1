"""Which children come first, what they are worth, and what a drawn one is drawn from."""

from __future__ import annotations

import pytest
import torch

from forerun.core.law import Categorical, Law
from forerun.drafters.branching.tree_growth import (
    Child,
    DrawnSiblings,
    RankedSiblings,
    SiblingSource,
    affordable,
    best_first,
    goes_on,
)

PROBS = [0.5, 0.3, 0.15, 0.05]
RANKING = list(enumerate(PROBS))


def law() -> Categorical:
    return Categorical(torch.tensor(PROBS))


def drawn(*tokens: int, n: int = 4, confidence: float = 1.0) -> tuple[DrawnSiblings, list[Law]]:
    """Offers that draw these tokens in turn, and the laws that they were asked to draw from."""
    script, asked = list(tokens), []

    def propose(law: Law) -> int:
        asked.append(law)
        return script.pop(0)

    return DrawnSiblings(law(), RANKING[:n], confidence, propose), asked


def test_chosen_children_are_the_best_tokens_in_order() -> None:
    offers = RankedSiblings(RANKING[:3], 0.5)
    taken = [offers.take() for _ in range(3)]
    assert [child.token for child in taken] == [0, 1, 2]
    assert [child.law for child in taken] == [None] * 3
    assert [child.confidence for child in taken] == pytest.approx([0.25, 0.15, 0.075])
    assert offers.worth == 0


def test_what_a_child_is_worth_is_its_confidence() -> None:
    for offers in (RankedSiblings(RANKING, 0.7), drawn(2, 0, 1, 3, confidence=0.7)[0]):
        while offers.worth:
            worth = offers.worth
            assert offers.take().confidence == worth
            assert offers.worth < worth


def test_drawn_children_carry_what_is_left_of_the_law() -> None:
    offers, asked = drawn(1, 0, 3)
    taken = [offers.take() for _ in range(3)]
    assert [child.law for child in taken] == asked
    expected = [PROBS, [0.5 / 0.7, 0, 0.15 / 0.7, 0.05 / 0.7], [0, 0, 0.75, 0.25]]
    for own, probs in zip(asked, expected, strict=True):
        torch.testing.assert_close(own.probs, torch.tensor(probs))  # type: ignore[attr-defined]


def test_the_first_drawn_child_is_worth_more_than_the_best_token_and_less_than_its_parent() -> None:
    assert drawn(0)[0].worth == pytest.approx(0.75)
    assert drawn(0, confidence=0.4)[0].worth == pytest.approx(0.3)


@pytest.mark.parametrize(("first", "best"), [(0, 0.3 / 0.5), (1, 0.5 / 0.7)])
def test_a_further_drawn_child_counts_if_those_before_it_are_rejected(first: int, best: float) -> None:
    offers, _ = drawn(first)
    offers.take()
    assert offers.worth == pytest.approx(0.25 * (1 + best) / 2)


def test_what_a_drawn_child_is_worth_does_not_depend_on_what_it_turns_out_to_be() -> None:
    assert len({drawn(token)[0].take().confidence for token in range(4)}) == 1


def test_no_more_are_drawn_than_there_are_tokens() -> None:
    offers, _ = drawn(1, 0, n=2)
    offers.take()
    offers.take()
    assert offers.worth == 0


def test_the_most_confident_of_all_nodes_children_come_first() -> None:
    taken = best_first(
        [RankedSiblings([(7, 0.6), (8, 0.4)], 0.5), RankedSiblings([(9, 0.9), (6, 0.1)], 0.3)], 0, (0.0,) * 9
    )
    assert [(index, child.token) for index, child in taken] == [(0, 7), (1, 9), (0, 8), (1, 6)]


def test_drawn_siblings_stay_in_their_drawing_order() -> None:
    one, other = drawn(3, 0, 1, 2)[0], drawn(2, 3, 0, 1, confidence=0.9)[0]
    taken = best_first([one, other], 0, (0.0,) * 9)
    assert [child.token for index, child in taken if index == 0] == [3, 0, 1, 2]
    assert [child.token for index, child in taken if index == 1] == [2, 3, 0, 1]


def test_a_node_that_is_not_worth_its_price_ends_the_level() -> None:
    offers: list[SiblingSource] = [RankedSiblings([(7, 0.6), (8, 0.4)], 1.0)]
    assert [child.token for _, child in best_first(offers, 0, (0.5, 0.5, 0.0))] == [7]
    assert offers[0].worth == pytest.approx(0.4)


def test_prices_are_those_of_the_nodes_places_in_the_draft() -> None:
    assert best_first([RankedSiblings([(7, 0.6)], 1.0)], 1, (0.1, 0.9)) == []
    assert len(best_first([RankedSiblings([(7, 0.6)], 1.0)], 0, (0.1, 0.9))) == 1


def test_the_budget_ends_the_level() -> None:
    assert len(best_first([RankedSiblings(RANKING, 1.0)], 3, (0.0,) * 5)) == 2
    assert best_first([RankedSiblings(RANKING, 1.0)], 5, (0.0,) * 5) == []


def test_nothing_is_drawn_that_is_not_taken() -> None:
    offers, asked = drawn(0, 1)
    best_first([offers], 0, (0.5, 0.5))
    assert len(asked) == 1


def test_a_token_of_probability_zero_is_no_child() -> None:
    sure, _ = DrawnSiblings(Categorical(torch.tensor([1.0, 0.0])), [(0, 1.0)], 1.0, lambda law: law.quantile(0.5)), None
    assert len(best_first([sure, RankedSiblings([], 1.0)], 0, (0.0,) * 9)) == 1


@pytest.mark.parametrize(
    ("worth", "node", "fine"), [(0.5, 0, True), (0.49, 0, False), (0.5, 1, False), (0.6, 1, True), (1.0, 2, False)]
)
def test_a_node_may_be_had_at_its_price_and_none_after_the_last(worth: float, node: int, fine: bool) -> None:
    assert affordable(worth, node, (0.5, 0.6)) == fine


@pytest.mark.parametrize(("eos", "nodes", "fine"), [((), 0, True), ((7,), 0, False), ((), 1, False), ((8,), 2, False)])
def test_a_node_goes_on_where_a_child_can_be_worth_its_price_and_no_text_ends(
    eos: tuple[int, ...], nodes: int, fine: bool
) -> None:
    assert goes_on(Child(7, None, 0.5), nodes, (0.5, 0.6), eos) == fine
