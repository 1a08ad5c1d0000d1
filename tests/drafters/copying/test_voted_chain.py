from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from forerun.core.values import ROOT, Draft, Round, Verdict
from forerun.drafters.copying.continuations import Continuations, Vote
from forerun.drafters.copying.ngram_votes import NgramVotes
from forerun.drafters.copying.text_index import Match
from forerun.drafters.copying.vote_acceptance import VoteAcceptance
from forerun.drafters.copying.voted_chain import Find, VotedChain, check_least

TEXT = [5, 6, 7, 8]


def chain(acceptance: VoteAcceptance, least: float = 0.01, length: int = 4) -> VotedChain:
    return VotedChain(Continuations([Match(TEXT, 0, length)], ()), acceptance, least)


def drafted(chain: VotedChain, most: int = 10) -> Draft:
    steps = []
    while len(steps) < most and (step := chain.next()) is not None:
        steps.append(step)
    return Draft.of(steps)


def judged(draft: Draft, accepted: int) -> Round:
    tokens = (*draft.tokens[:accepted], 0)
    return Round(tokens, draft, Verdict(tuple(range(accepted)), tokens), 1)


def test_tokens_are_chosen_and_chained() -> None:
    draft = drafted(chain(VoteAcceptance()))
    assert draft.tokens == (5, 6, 7, 8)
    assert draft.parents == (ROOT, 0, 1, 2)
    assert draft.laws == (None,) * 4


@pytest.mark.parametrize("least", [0.5, 0.7, 0.95])
def test_the_whole_draft_is_as_likely_as_asked(least: float) -> None:
    one, likely = chain(VoteAcceptance(), least), 1.0
    while (step := one.next()) is not None:
        assert step.confidence is not None
        likely *= step.confidence
    assert likely >= least


def test_what_was_accepted_of_it_is_counted() -> None:
    acceptance = VoteAcceptance()
    for _ in range(20):
        one = chain(acceptance)
        assert one.learn(judged(drafted(one), 0))
    step = chain(acceptance).next()
    assert step is not None
    assert step.confidence is not None
    assert step.confidence < 0.2


def test_a_draft_that_was_cut_short_is_still_its_own() -> None:
    one = chain(VoteAcceptance())
    assert one.learn(judged(drafted(one, 2), 2))


def test_another_draft_is_told_apart() -> None:
    one = chain(VoteAcceptance())
    assert not one.learn(judged(Draft(), 0))
    drafted(one)
    assert not one.learn(judged(Draft((9,), (ROOT,), (None,)), 0))


def confidence_after(*texts: tuple[int, ...], least: float = 0.01) -> float:
    """Of the first token, where these texts followed ones that nothing of the draft was verified in."""
    acceptance = VoteAcceptance()
    for text in texts:
        one = chain(acceptance, least)
        one.next()
        assert one.learn(Round(text, Draft(), Verdict((), text), 1))
    step = chain(acceptance).next()
    assert step is not None
    assert step.confidence is not None
    return step.confidence


@pytest.mark.parametrize("least", [0.01, 0.99])
def test_a_token_that_was_left_out_teaches_by_what_the_text_became(least: float) -> None:
    assert confidence_after(*[(9,)] * 20, least=least) < 0.2
    assert confidence_after(*[(5,)] * 20, least=least) > 0.9


def test_votes_beyond_what_the_text_tells_teach_nothing() -> None:
    acceptance = VoteAcceptance()
    one = chain(acceptance)
    draft = drafted(one)
    one.learn(Round(draft.tokens[:2], draft, Verdict((0, 1), draft.tokens[:2]), 1))
    assert [counted[-2:] for counted in acceptance.as_data()] == [[1.0, 1.0], [1.0, 1.0]]


class Table:
    """Says of each last token what follows, and how likely."""

    longest = 4

    def __init__(self, follows: dict[int, tuple[int, float]]) -> None:
        self._follows = follows

    def after(self, end: Sequence[int]) -> Vote | None:
        return Vote(*self._follows[end[-1]], 0, 1) if end[-1] in self._follows else None


def beside(
    table: Table, matches: Sequence[Match] = (), text: Sequence[int] = (9,), find: Find | None = None
) -> VotedChain:
    votes = cast("NgramVotes", table)
    return VotedChain(Continuations(matches, text), VoteAcceptance(), 0.01, votes, text, find)


def test_a_table_alone_drafts_from_token_to_token() -> None:
    assert drafted(beside(Table({9: (3, 0.9), 3: (4, 0.8)}))).tokens == (3, 4)


def test_the_surer_of_places_and_table_says_the_token() -> None:
    doubtful, sure = [Match(TEXT, 0, 1)], [Match(TEXT, 0, 30)]
    assert drafted(beside(Table({9: (3, 0.9)}), doubtful), 1).tokens == (3,)
    assert drafted(beside(Table({9: (3, 0.2)}), doubtful), 1).tokens == (5,)
    assert drafted(beside(Table({9: (3, 0.85)}), sure), 1).tokens == (5,)


def test_places_that_agree_with_the_table_go_on_after_its_token() -> None:
    assert drafted(beside(Table({9: (5, 0.9)}), [Match(TEXT, 0, 1)])).tokens == (5, 6, 7, 8)


def test_where_no_place_goes_on_the_text_is_searched_again() -> None:
    asked: list[list[int]] = []

    def find(end: list[int]) -> list[Match]:
        asked.append(end)
        return [Match(TEXT, 2, 2)] if end[-1] == 3 else []

    assert drafted(beside(Table({9: (3, 0.9)}), find=find)).tokens[:3] == (3, 7, 8)
    assert asked[0] == [9, 3]


def test_tokens_of_a_table_are_learnt_from_as_others_are() -> None:
    acceptance, table = VoteAcceptance(), cast("NgramVotes", Table({9: (3, 0.9)}))
    for _ in range(20):
        one = VotedChain(Continuations((), ()), acceptance, 0.01, table, [9])
        assert one.learn(judged(drafted(one), 0))
    step = VotedChain(Continuations((), ()), acceptance, 0.01, table, [9]).next()
    assert step is not None
    assert step.confidence is not None
    assert step.confidence < 0.3


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_a_draft_can_end(least: float) -> None:
    with pytest.raises(ValueError, match="least must be above 0 and below 1"):
        check_least(least)
