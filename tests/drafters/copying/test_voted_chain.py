from __future__ import annotations

import pytest

from forerun.core.values import ROOT, Draft, Round, Verdict
from forerun.drafters.copying.continuations import Continuations
from forerun.drafters.copying.text_index import Match
from forerun.drafters.copying.vote_acceptance import VoteAcceptance
from forerun.drafters.copying.voted_chain import VotedChain

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
