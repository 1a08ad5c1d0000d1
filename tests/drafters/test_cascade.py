from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import torch

import forerun
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.values import ROOT, Context, Draft, DraftCounts, Round, Step, Timing, UnusedWork, Verdict
from forerun.drafters.base import DRAFTERS
from forerun.drafters.cascade import RETRY, Cascade
from forerun.drafters.promises import Promises
from forerun.errors import UnsupportedOption
from forerun.testing import tiny_model

from .test_suffix import steps


class Scripted(Drafter):
    """Drafts these tokens as a chain, each with this confidence; remembers what happens to it."""

    def __init__(self, *tokens: int, confidence: float | None = None) -> None:
        self.tokens = tokens
        self.confidence = confidence
        self.happened: list[str] = []

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self.happened.append("asked")
        try:
            for node, token in enumerate(self.tokens):
                yield Step((token,), (node - 1,), (None,), confidence=self.confidence)
            self.unused = UnusedWork(DraftCounts(forwards=1), 0.5)
        finally:
            self.happened.append("ended")

    def unread(self, ids: Any) -> int:
        return self.tokens[0] if self.tokens else 0

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        self.happened.append("learnt")

    def close(self) -> None:
        self.happened.append("closed")


def drafted(cascade: Cascade, most: int = 10) -> list[tuple[int, int]]:
    found = steps(cascade, Context([1, 2, 3], Seeded(0)), most)
    return [(step.tokens[0], step.parents[0]) for step in found]


def finish(cascade: Cascade, draft: list[tuple[int, int]], accepted: int, seconds: float) -> None:
    """The round that such a draft came to."""
    made = Draft(tuple(token for token, _ in draft), tuple(node for _, node in draft), (None,) * len(draft))
    verdict = Verdict(tuple(range(accepted)), (0,) * (accepted + 1))
    timing = Timing(forward=seconds)
    logits = torch.zeros(len(draft) + 1, 8)
    cascade.learn(
        Context([1, 2, 3], Seeded(0)), Round(verdict.tokens, made, verdict, 3, timing=timing), Rows(logits, logits)
    )


def taught(cascade: Cascade, rounds: int, accepted: dict[int, int], seconds: dict[int, float]) -> None:
    """Rounds in which drafts that begin with a token come to so many accepted ones in so much time."""
    finish(cascade, [], 0, 1.0)
    for _ in range(rounds):
        draft = drafted(cascade)
        first = draft[0][0]
        finish(cascade, draft, accepted[first], seconds[first])


def test_the_first_one_drafts_until_another_one_is_known_to_promise_more() -> None:
    first, then = Scripted(4, 5), Scripted(6, 7)
    cascade = Cascade([first, then], Promises())
    assert drafted(cascade) == [(4, ROOT), (5, 0)]


def test_where_the_first_one_finds_nothing_the_next_one_drafts() -> None:
    cascade = Cascade([Scripted(), Scripted(), Scripted(6, 7)], Promises())
    assert drafted(cascade) == [(6, ROOT), (7, 0)]
    assert drafted(Cascade([Scripted(), Scripted()], Promises())) == []


def test_the_one_that_gives_more_tokens_for_its_time_drafts() -> None:
    cascade = Cascade([Scripted(4, 5), Scripted(6, 7)], Promises())
    taught(cascade, 60, {4: 0, 6: 2}, {4: 1.5, 6: 1.2})
    assert drafted(cascade)[0][0] == 6


def test_a_sure_beginning_drafts_where_a_doubtful_one_gives_way() -> None:
    promises = Promises()
    doubtful = Cascade([Scripted(4, confidence=0.1), Scripted(6, 7)], promises)
    taught(doubtful, 60, {4: 0, 6: 2}, {4: 1.5, 6: 1.5})
    assert drafted(doubtful)[0][0] == 6
    sure = Cascade([Scripted(4, 5, 5, confidence=0.95), Scripted(6, 7)], promises)
    taught(sure, 20, {4: 3, 6: 2}, {4: 1.5, 6: 1.5})
    assert drafted(sure)[0][0] == 4


def test_one_that_costs_more_than_it_promises_is_not_asked_but_now_and_then() -> None:
    first, then = Scripted(4, 5, confidence=0.9), Scripted(6, 7)
    cascade = Cascade([first, then], Promises())
    taught(cascade, 4 * RETRY, {4: 2, 6: 0}, {4: 1.0, 6: 5.0})
    assert 1 <= then.happened.count("asked") < 12
    assert first.happened.count("asked") == 4 * RETRY


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_a_draft_that_is_cut_short_ends_all_that_were_asked(taken: int) -> None:
    first, then = Scripted(4, 5), Scripted(6, 7)
    drafted(Cascade([first, then], Promises()), taken)
    assert [one.happened.count("asked") == one.happened.count("ended") for one in (first, then)] == [True, True]


def test_all_learn_from_every_round_and_are_closed() -> None:
    drafters = [Scripted(4), Scripted(6)]
    cascade = Cascade(drafters, Promises())
    finish(cascade, [], 0, 1.0)
    cascade.close()
    assert [one.happened for one in drafters] == [["learnt", "closed"]] * 2


def test_work_that_led_to_nothing_is_counted() -> None:
    cascade = Cascade([Scripted(), Scripted()], Promises())
    drafted(cascade)
    assert cascade.unused == UnusedWork(DraftCounts(forwards=2), 1.0)


def test_the_most_that_one_has_to_read_is_what_is_unread() -> None:
    assert Cascade([Scripted(), Scripted(9), Scripted(4)], Promises()).unread([1, 2]) == 9


@pytest.mark.parametrize("of", ["lookup", "lookup,lookup", "", "cascade,lookup", "lookup,nothing"])
def test_names_that_make_no_cascade_are_refused(of: str) -> None:
    with pytest.raises(UnsupportedOption):
        forerun.load(tiny_model("llama"), drafter="cascade", drafter_options={"of": of})


def test_options_go_to_the_drafter_that_has_them_or_that_is_named() -> None:
    build = DRAFTERS.entry("cascade").build
    build(None, of="suffix,lookup", max_ngram=2, history=0)  # type: ignore[arg-type]
    build(None, of="suffix,prediction", suffix_least=0.3, prediction_least=0.2)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedOption, match="write suffix_least or prediction_least"):
        build(None, of="suffix,prediction", least=0.3)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedOption, match=r"no option 'k'; its options: of, least, history, max_ngram"):
        build(None, of="suffix,lookup", k=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="min_ngram"):
        build(None, of="suffix,lookup", max_ngram=0)  # type: ignore[arg-type]


def test_texts_are_those_of_plain_decoding() -> None:
    model = tiny_model("llama")
    prompts = [[5, 6, 7, 5, 6], [1, 2, 3], [9] * 6]
    plain = [result.ids for result in forerun.load(model).generate(prompts, max_new_tokens=24)]
    options = {"of": "suffix,self", "exit_layer": 2}
    engine = forerun.load(model, drafter="cascade", drafter_options=options, policy="fixed", policy_options={"k": 3})
    for _ in range(2):
        assert [result.ids for result in engine.generate(prompts, max_new_tokens=24)] == plain
