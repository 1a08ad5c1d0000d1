from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import count
from typing import Any

import pytest
import torch

import forerun
from forerun import Engine
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.law import PointMass
from forerun.core.learned import learned_by
from forerun.core.values import ROOT, Context, Draft, DraftCounts, Round, Step, Timing, UnusedWork, Verdict
from forerun.drafters.base import DRAFTERS
from forerun.drafters.cascade import RETRY, Cascade
from forerun.drafters.cascading.promises import Promises
from forerun.errors import UnsupportedOption
from forerun.testing import tiny_model

from .test_suffix import steps


class Scripted(Drafter):
    """Drafts these tokens as a chain, each with this confidence; remembers what happens to it.

    reads: computes, and has so many tokens to read first.
    """

    def __init__(
        self, *tokens: int, confidence: float | None = None, reads: int | None = None, law: PointMass | None = None
    ) -> None:
        self.tokens = tokens
        self.confidence = confidence
        self.branches = reads is not None
        self.reads = reads or 0
        self.law = law
        self.happened: list[str] = []

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self.happened.append("asked")
        try:
            for node, token in enumerate(self.tokens):
                yield Step((token,), (node - 1,), (self.law,), confidence=self.confidence)
            self.unused = UnusedWork(DraftCounts(forwards=1), 0.5)
        finally:
            self.happened.append("ended")

    def unread(self, ids: Any) -> int:
        return self.reads

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        self.happened.append("learnt")

    def close(self) -> None:
        self.happened.append("closed")


def cascade_of(*drafters: Drafter, promises: Promises | None = None) -> Cascade:
    return Cascade(drafters, ["one", "two", "three"][: len(drafters)], promises or Promises())


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
    cascade = cascade_of(first, then)
    assert drafted(cascade) == [(4, ROOT), (5, 0)]


def test_where_the_first_one_finds_nothing_the_next_one_drafts() -> None:
    cascade = cascade_of(Scripted(), Scripted(), Scripted(6, 7))
    assert drafted(cascade) == [(6, ROOT), (7, 0)]
    assert drafted(cascade_of(Scripted(), Scripted())) == []


def test_the_one_that_gives_more_tokens_for_its_time_drafts() -> None:
    cascade = cascade_of(Scripted(4, 5), Scripted(6, 7))
    taught(cascade, 60, {4: 0, 6: 2}, {4: 1.5, 6: 1.2})
    assert drafted(cascade)[0][0] == 6


def test_a_sure_beginning_drafts_where_a_doubtful_one_gives_way() -> None:
    promises = Promises()
    doubtful = cascade_of(Scripted(4, confidence=0.1), Scripted(6, 7), promises=promises)
    taught(doubtful, 60, {4: 0, 6: 2}, {4: 1.5, 6: 1.5})
    assert drafted(doubtful)[0][0] == 6
    sure = cascade_of(Scripted(4, 5, 5, confidence=0.95), Scripted(6, 7), promises=promises)
    taught(sure, 20, {4: 3, 6: 2}, {4: 1.5, 6: 1.5})
    assert drafted(sure)[0][0] == 4


def test_one_that_costs_more_than_it_promises_is_not_asked_but_now_and_then() -> None:
    first, then = Scripted(4, 5, confidence=0.9), Scripted(6, 7, reads=0)
    cascade = cascade_of(first, then)
    taught(cascade, 40 * RETRY, {4: 2, 6: 0}, {4: 1.0, 6: 5.0})
    assert 1 <= then.happened.count("asked") < 10
    assert first.happened.count("asked") == 40 * RETRY


def test_where_no_draft_is_worth_its_time_none_is_made_but_now_and_then() -> None:
    only, never = Scripted(4, 5, reads=0), Scripted()
    cascade = cascade_of(only, never)
    finish(cascade, [], 0, 1.0)
    lengths = []
    for _ in range(400):
        draft = drafted(cascade)
        lengths.append(len(draft))
        finish(cascade, draft, 0, 1.5 if draft else 1.0)
    assert sum(map(bool, lengths[:50])) < 10
    assert 1 <= sum(map(bool, lengths[50:])) < 15


def test_it_drafts_again_where_drafts_have_become_worth_it() -> None:
    only = Scripted(4, 5, reads=0)
    cascade = cascade_of(only, Scripted())
    taken = {True: 1.5, False: 1.0}
    finish(cascade, [], 0, 1.0)
    for accepted in [0] * 100 + [2] * 2000:
        draft = drafted(cascade)
        finish(cascade, draft, accepted if draft else 0, taken[bool(draft)])
    assert len(drafted(cascade)) == 2


def test_a_draft_after_a_refused_one_is_judged_by_such_drafts() -> None:
    """Of a drafter that is right in runs."""
    promises = Promises()
    cascade = cascade_of(Scripted(4, 5, 5, 5, confidence=0.9), Scripted(), promises=promises)
    finish(cascade, [], 0, 1.0)
    for accepted in [4, 4, 4, 4, 4, 0, 0, 0] * 20:
        draft = drafted(cascade)
        finish(cascade, draft, min(accepted, len(draft)), 1.1)
    followed, refused = (promises.of(("one 4", f"one 4 {ended}"), (2.0, 1.25)) for ended in ("followed", "refused"))
    assert followed > refused + 1


def test_a_long_text_is_read_for_a_long_answer_alone() -> None:
    def asked(room: int) -> bool:
        first, then = Scripted(4, 5), Scripted(6, 7, reads=2000)
        cascade = cascade_of(first, then, promises=promises)
        steps(cascade, Context([1, 2, 3], Seeded(0), max_new_tokens=room), 4)
        return "asked" in then.happened

    promises = Promises()
    promises.learn_plain(1.0)
    for _ in range(60):
        promises.learn(("one", "one fresh"), 1, 1.2)
        promises.learn(("two", "two fresh"), 3, 1.2)
    assert (asked(4), asked(60)) == (False, True)


def test_a_draft_that_read_first_teaches_what_reading_costs_and_not_what_drafts_do() -> None:
    promises = Promises()
    promises.learn_plain(1.0)
    cascade = cascade_of(Scripted(), Scripted(6, 7, reads=50), promises=promises)
    finish(cascade, drafted(cascade), 2, 30.0)
    assert promises.of_reading("two", 50) > 5
    assert promises.as_data()["kinds"]["two"] == [1.0, 3.0, 1.25]
    finish(cascade, drafted(cascade), 2, 1.5)
    assert promises.as_data()["kinds"]["two"][2] == pytest.approx(2.75, abs=0.02)


def test_the_confidence_of_a_drawn_token_decides_nothing() -> None:
    """It depends on the token, and a token must not be dropped for what it is."""
    chosen = cascade_of(Scripted(4, confidence=0.1), Scripted(6, 7))
    drawn = cascade_of(Scripted(4, confidence=0.1, law=PointMass(4)), Scripted(6, 7))
    assert (drafted(chosen)[0][0], drafted(drawn)[0][0]) == (6, 4)


def test_without_promises_the_first_one_that_finds_something_drafts() -> None:
    first, then = Scripted(4, confidence=0.01), Scripted(6, 7, reads=9)
    cascade = Cascade((first, then), ("prediction", "other"), None)
    for _ in range(3 * RETRY):
        draft = drafted(cascade)
        assert (draft, cascade.drafted_by) == ([(4, ROOT)], "prediction")
        finish(cascade, draft, 0, 9.0)
    assert then.happened.count("asked") == 0
    first.tokens = ()
    assert (drafted(cascade), cascade.drafted_by) == ([(6, ROOT), (7, 0)], "other")


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_a_draft_that_is_cut_short_ends_all_that_were_asked(taken: int) -> None:
    first, then = Scripted(4, 5), Scripted(6, 7)
    drafted(cascade_of(first, then), taken)
    assert [one.happened.count("asked") == one.happened.count("ended") for one in (first, then)] == [True, True]


def test_all_learn_from_every_round_and_are_closed() -> None:
    drafters = [Scripted(4), Scripted(6)]
    cascade = cascade_of(*drafters)
    finish(cascade, [], 0, 1.0)
    cascade.close()
    assert [one.happened for one in drafters] == [["learnt", "closed"]] * 2


def test_work_that_led_to_nothing_is_counted() -> None:
    cascade = cascade_of(Scripted(), Scripted())
    drafted(cascade)
    assert cascade.unused == UnusedWork(DraftCounts(forwards=2), 1.0)


def test_it_drafts_without_reading_what_only_some_have_to_read() -> None:
    assert cascade_of(Scripted(), Scripted(reads=9), Scripted(reads=4)).unread([1, 2]) == 0
    assert cascade_of(Scripted(reads=9), Scripted(reads=4)).unread([1, 2]) == 4


@pytest.mark.parametrize("of", ["lookup", "lookup,lookup", "", "cascade,lookup", "lookup,hybrid", "lookup,nothing"])
def test_names_that_make_no_cascade_are_refused(of: str) -> None:
    with pytest.raises(UnsupportedOption):
        forerun.load(tiny_model("llama"), drafter="cascade", drafter_options={"of": of})


def test_options_go_to_the_drafter_that_has_them_or_that_is_named() -> None:
    build = DRAFTERS.entry("cascade").build
    build(None, of="suffix,lookup", max_ngram=2, history=0)  # type: ignore[arg-type]
    build(None, of="suffix,prediction", suffix_least=0.3, prediction_least=0.2)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedOption, match="write suffix_least or prediction_least"):
        build(None, of="suffix,prediction", least=0.3)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedOption, match=r"no option 'k'; its options: of, least, history, ngrams, max_ngram"):
        build(None, of="suffix,lookup", k=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="min_ngram"):
        build(None, of="suffix,lookup", max_ngram=0)  # type: ignore[arg-type]


def test_each_step_tells_who_drafted_it() -> None:
    cascade = cascade_of(Scripted(), Scripted(6, 7))
    assert [step.drafted_by for step in steps(cascade, Context([1, 2, 3], Seeded(0)))] == ["two", "two"]


@pytest.mark.parametrize("copies", [True, False])
def test_asking_costs_little_where_one_of_them_copies(copies: bool) -> None:
    last = Scripted(reads=9)
    last.copies = copies
    assert cascade_of(Scripted(reads=4), last).copies == copies


def test_a_drafter_whose_first_tokens_are_left_out_promises_nothing_more() -> None:
    """So another one is asked in its place."""
    cascade = cascade_of(Scripted(4, 5, confidence=0.5), Scripted(6, 7, reads=0))
    finish(cascade, [], 0, 1.0)
    for _ in range(60):
        draft = drafted(cascade)
        left_out = draft[0][0] == 4
        finish(cascade, [] if left_out else draft, 0 if left_out else 2, 1.0 if left_out else 1.5)
    assert drafted(cascade)[0][0] == 6


def test_texts_are_those_of_plain_decoding() -> None:
    model = tiny_model("llama")
    prompts = [[5, 6, 7, 5, 6], [1, 2, 3], [9] * 6]
    plain = [result.ids for result in forerun.load(model).generate(prompts, max_new_tokens=24)]
    options = {"of": "suffix,self", "exit_layer": 2}
    engine = forerun.load(model, drafter="cascade", drafter_options=options, policy="fixed", policy_options={"k": 3})
    for _ in range(2):
        assert [result.ids for result in engine.generate(prompts, max_new_tokens=24)] == plain


def hybrid(engine: Engine, **options: Any) -> Drafter:
    return DRAFTERS.check("hybrid", options).build(engine._parts, **options)(engine._parts.target.acquire())


@pytest.fixture(scope="module")
def engine() -> Engine:
    return forerun.load(tiny_model("llama"))


def test_hybrid_is_another_name_for_a_cascade_of_lookup_and_another_one(engine: Engine) -> None:
    drafter = hybrid(engine, then="none", min_ngram=2)
    assert isinstance(drafter, Cascade)
    assert drafter._names == ("lookup", "none")
    assert [step.tokens[0] for step in steps(drafter, Context([7, 1, 50, 8, 7, 1], Seeded(0)))] == [50, 8, 7, 1]
    assert steps(drafter, Context([7, 1, 50, 8, 1], Seeded(0))) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "drafter 'hybrid' needs option 'then': Another name for cascade"),
        ({"then": "magic"}, "unknown drafter 'magic'; known: .*cascade, corpus, draft_model, .*lookup"),
        ({"then": "hybrid"}, "then must be a drafter other than .*hybrid and lookup, got 'hybrid'"),
        ({"then": "lookup"}, "then must be a drafter other than .*hybrid and lookup, got 'lookup'"),
        ({"then": "draft_model"}, "drafter 'draft_model' needs option 'model'"),
        ({"then": "self", "model": "x"}, "has no option 'model'; its options: of, max_ngram, min_ngram, exit_layer"),
        (
            {"then": "self", "exit_layer": 9, "min_ngram": 2},
            "exit_layer must be in 1..3 for a model of 4 layers, got 9",
        ),
        ({"then": "self", "min_ngram": 9}, "min_ngram must be in 1..max_ngram, got min_ngram 9"),
    ],
)
def test_a_hybrid_that_can_not_be_built_is_refused(engine: Engine, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hybrid(engine, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"then": "self", "exit_layer": 3},
        {"then": "draft_model", "model": "small"},
        {"then": "tree", "of": "self", "exit_layer": 3, "min_confidence": 0.0},
        {"then": "graph", "of": "draft_model", "model": "small", "m": 0, "leaf": 0.0},
    ],
)
def test_rounds_that_one_sat_out_do_not_confuse_it(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In every round the other one drafts than in the round before, whatever these are worth."""
    model, small = tiny_model("llama"), tiny_model("llama", seed=7, num_hidden_layers=1)
    given = {name: small if value == "small" else value for name, value in options.items()}
    drafting = count(1)
    monkeypatch.setattr(
        Promises, "of", lambda self, kinds, guess: 1.0 + next(drafting) % 3 + kinds[0].startswith("look")
    )
    prompt = [5, 6, 7, 8, 5, 6]
    built = forerun.load(model, drafter="hybrid", drafter_options=given)
    mixed = built.generate(prompt, max_new_tokens=60)
    assert mixed.ids == forerun.load(model).generate(prompt, max_new_tokens=60).ids
    assert mixed.stats.drafted > 0 < mixed.stats.draft_forwards


def test_what_a_cascade_learnt_goes_on_in_another_one(engine: Engine) -> None:
    made = engine.using("cascade", drafter_options={"of": "suffix,lookup"})
    for _ in range(2):
        made.generate([5, 6, 7, 8] * 4, max_new_tokens=24)
    data = {name: one.as_data() for name, one in learned_by(made.drafter).items()}
    assert data["promises"]["kinds"]
    other = engine.using("cascade", drafter_options={"of": "suffix,lookup"})
    for name, one in learned_by(other.drafter).items():
        one.recall(data[name])
    assert {name: one.as_data() for name, one in learned_by(other.drafter).items()} == data
