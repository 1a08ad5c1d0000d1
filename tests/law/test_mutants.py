"""The gate has teeth: each mistake moves the law of three drafted tokens by the total variation noted beside it.

Three tokens of vocabulary, drafts of three; exact values, to three places. None of the scenarios is off without its
mistake.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import final

import pytest

from forerun.core.chance import Chance
from forerun.core.values import ROOT, Draft
from forerun.policies.fixed import Fixed
from forerun.policies.threshold import Threshold

from . import drafts, mutants
from .exact import (
    PROMPT,
    WITH_HISTORY,
    Enumerated,
    FractionLaw,
    Scenario,
    Table,
    branches,
    distance,
    loop,
    truth,
    written,
)

pytestmark = pytest.mark.usefixtures("tables")

P, Q = Table("p"), Table("q")
CHAIN = Scenario(P, drafts.chain, lambda: Fixed(3), Q)
PENALISED = replace(CHAIN, target=replace(P, penalty=3), drafts=replace(Q, penalty=3), sampling=WITH_HISTORY)
STOPPED = replace(CHAIN, policy=lambda: Threshold(0.4, 3))
CHOSEN_TREE = Scenario(P, drafts.tree(Q, drafts.two_best), lambda: Fixed(2), length=3)
ADAPTIVE = replace(CHAIN, policy=drafts.SkipsAfterZero, length=3)
DISJOINT = replace(CHAIN, target=Table("p4", 4, support=(0, 1)), drafts=Table("q4", 4, support=(2, 3)))

MISTAKES = [
    (mutants.greedy_draft_with_softmax, CHAIN, 0.640),
    (mutants.drawn_from_top_two_with_raw_draft_law, CHAIN, 0.247),
    (mutants.resampled_from_the_target_itself, CHAIN, 0.187),
    (mutants.history_frozen_at_the_round_start, PENALISED, 0.170),
    (mutants.unlikely_drawn_token_dropped, STOPPED, 0.191),
    (mutants.dropped_by_the_targets_law, CHAIN, 0.053),
    (mutants.a_target_sample_for_each_row, CHOSEN_TREE, 0.273),
    (mutants.draft_numbers_without_the_round, ADAPTIVE, 0.017),
    (mutants.one_number_for_coin_and_token, ADAPTIVE, 0.031),
    (mutants.everything_accepted, CHAIN, 0.519),
    (mutants.rows_off_by_one, CHAIN, 0.287),
]
DECIDE_TWICE = (mutants.draft_numbers_without_the_round, mutants.one_number_for_coin_and_token)


@pytest.mark.parametrize(("mutate", "scenario", "moved"), MISTAKES, ids=[mutate.__name__ for mutate, _, _ in MISTAKES])
def test_a_mistake_moves_the_law(
    mutate: Callable[[pytest.MonkeyPatch], None], scenario: Scenario, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = truth(scenario)
    assert written(scenario) == expected
    mutate(monkeypatch)
    if mutate in DECIDE_TWICE:
        with pytest.raises(AssertionError, match="decided twice"):
            written(scenario)
    assert round(float(distance(written(scenario, merge=mutate not in DECIDE_TWICE), expected)), 3) == moved


def test_siblings_drawn_without_replacement_need_the_laws_that_they_were_really_drawn_from() -> None:
    right = Scenario(P, drafts.tree(Q, drafts.without_replacement), lambda: Fixed(2))
    wrong = replace(right, drafter=drafts.tree(Q, mutants.siblings_with_the_first_ones_law))
    assert written(right) == truth(right)
    assert round(float(distance(written(wrong), truth(wrong))), 3) == 0.032


def test_a_target_sample_for_each_row_gives_the_first_rows_token_seven_times_in_eight() -> None:
    """fms-extras #12: candidates ab, ac, ad and ef where p(a) = p(e) = 1/2, and none of b, c, d, f is ever right."""
    a, e, never = 0, 1, 2
    p, rest = FractionLaw([1, 1, 0]), FractionLaw([1, 0, 0])
    draft = Draft((a, e, never, never, never, never), (ROOT, ROOT, 0, 0, 0, 1), (None,) * 6)

    def first_is_a(chance: Enumerated) -> bool:
        verdict = mutants.verify_by_rows(draft, lambda row, drafted: rest if drafted else p, chance, 0)
        return verdict.tokens[0] == a

    assert sum(weight for is_a, weight, _ in branches(first_is_a) if is_a) == Fraction(7, 8)


@final
class AtTheEdge(Chance):
    """The same number for everything."""

    def __init__(self, number: float) -> None:
        self._number = number

    def uniform(self, purpose: bytes, *key: int) -> float:
        return self._number


def written_at_the_edge(scenario: Scenario, number: float) -> Fraction:
    """How likely the target finds what the loop writes when every number is this one."""
    context, _ = loop(scenario, AtTheEdge(number), rounds=3)
    likelihood = Fraction(1)
    for end in range(1, len(context.ids)):
        likelihood *= Fraction(scenario.target.law(context.ids[:end], context.ids[:end]).probability(context.ids[end]))
    assert context.ids[0] == PROMPT
    return likelihood


@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-53])
def test_a_token_of_probability_zero_is_never_written_not_even_at_the_ends_of_the_numbers(number: float) -> None:
    assert written_at_the_edge(DISJOINT, number) > 0


def test_accepting_at_the_ratio_itself_lets_a_token_of_probability_zero_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants.accepted_at_the_ratio_itself(monkeypatch)
    assert written_at_the_edge(DISJOINT, 0.0) == 0
