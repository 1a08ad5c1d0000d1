from __future__ import annotations

from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import forerun
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.identity import Identity
from forerun.core.values import ROOT, Context, Draft, Round, Step, Verdict
from forerun.drafters.base import DRAFTERS, DrafterFactory
from forerun.models.files.ngrams import write_ngrams
from forerun.policies.base import confidence
from forerun.testing import tiny_model
from forerun.train.data.examples import Example
from forerun.train.ngrams.table import build_table

LOOP = [5, 6, 7, 8] * 6
IDENTITY = Identity("llama", 4, 32, 97, "a" * 16, "b" * 16)


def factory(**options: Any) -> DrafterFactory:
    return DRAFTERS.entry("suffix").build(None, **options)  # type: ignore[arg-type]


def suffix(**options: Any) -> Drafter:
    return factory(**options)(None)  # type: ignore[arg-type]


def context(ids: list[int], **options: Any) -> Context:
    return Context(list(ids), Seeded(0), **options)


def steps(drafter: Drafter, context: Context, most: int = 12) -> list[Step]:
    """The first steps, pulled one by one as the loop does: a draft in a loop never ends by itself."""
    source = drafter.draft(context)
    found: list[Step] = []
    while len(found) < most:
        try:
            anext(source).send(None)
        except StopIteration as step:
            found.append(step.value)
        except StopAsyncIteration:
            break
    with pytest.raises(StopIteration):
        source.aclose().send(None)
    return found


def tokens(drafter: Drafter, ids: list[int], most: int = 12) -> list[int]:
    return [step.tokens[0] for step in steps(drafter, context(ids), most)]


def judge(drafter: Drafter, drafted: list[Step], accepted: int) -> None:
    verdict = Verdict(tuple(range(accepted)), tuple(step.tokens[0] for step in drafted[:accepted]) + (0,))
    rows = Rows(torch.zeros(len(drafted) + 1, 8), torch.zeros(len(drafted) + 1, 4))
    drafter.learn(Context([1], Seeded(0)), Round(verdict.tokens, Draft.of(drafted), verdict, 1), rows)


def test_what_followed_the_longest_match_follows_again() -> None:
    assert tokens(suffix(least=0.01), [1, 2, 3, 50, 9, 3, 60, 1, 2, 3])[:2] == [50, 9]


def test_places_that_agree_outvote_the_newest_one() -> None:
    assert tokens(suffix(), [1, 50, 1, 50, 1, 50, 1, 60, 1], most=1) == [50]


def test_it_says_before_whether_a_draft_begins() -> None:
    for ids in ([1, 2, 3], [4], [1, 50, 1, 60, 1, 70, 1], LOOP):
        asked, unasked = suffix(), suffix()
        begins = asked.begins(context(ids))
        drafted = tokens(asked, ids) if begins else []
        assert drafted == tokens(unasked, ids)
        assert begins == bool(drafted)


def test_an_answer_that_was_not_followed_by_a_draft_is_not_the_next_rounds() -> None:
    drafter = suffix()
    assert drafter.begins(context(LOOP))
    verdict = Verdict((), (9,))
    rows = Rows(torch.zeros(1, 8), torch.zeros(1, 4))
    drafter.learn(context([*LOOP, 9]), Round((9,), Draft(), verdict, len(LOOP)), rows)
    assert tokens(drafter, [*LOOP, 9]) == []


def test_a_text_without_a_match_drafts_nothing() -> None:
    assert tokens(suffix(), [1, 2, 3]) == []
    assert tokens(suffix(), [4]) == []


def test_a_loop_goes_on_beyond_the_end_of_the_text() -> None:
    assert tokens(suffix(), LOOP) == [5, 6, 7, 8] * 3


def test_tokens_are_chosen_and_chained_with_a_confidence_each() -> None:
    found = steps(suffix(), context(LOOP), 3)
    assert [(step.parents, step.laws, step.logits) for step in found] == [
        ((ROOT,), (None,), None),
        ((0,), (None,), None),
        ((1,), (None,), None),
    ]
    assert all(0 < confidence(step) < 1 for step in found)


def test_a_draft_ends_where_the_whole_of_it_is_less_likely_than_least() -> None:
    ids = [1, 2, 50, 1, 2, 60, 70, 80, 1, 2]
    for least in (0.05, 0.2, 0.4):
        likely = 1.0
        for step in steps(suffix(least=least), context(ids)):
            likely *= confidence(step)
        assert likely >= least
    assert len(tokens(suffix(least=0.05), ids)) > len(tokens(suffix(least=0.4), ids))


def test_rejections_shorten_later_drafts() -> None:
    drafter = suffix(least=0.3)
    before = len(steps(drafter, context([1, 2, 50, 60, 1, 2])))
    for _ in range(30):
        judge(drafter, steps(drafter, context([1, 2, 50, 60, 1, 2])), 0)
    assert len(steps(drafter, context([1, 2, 50, 60, 1, 2]))) < before


def test_what_was_learnt_serves_the_next_request() -> None:
    make = factory(least=0.3)
    for _ in range(30):
        first = make(None)  # type: ignore[arg-type]
        judge(first, steps(first, context([1, 2, 50, 60, 1, 2])), 0)
    assert tokens(make(None), [1, 2, 50, 60, 1, 2]) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("written", "goes"), [(0, "down"), (5, "up")])
def test_a_round_that_another_drafter_drafted_tells_which_votes_were_right(written: int, goes: str) -> None:
    drafter = suffix()
    before = [confidence(step) for step in steps(drafter, context(LOOP), 2)]
    other = Draft((90,), (ROOT,), (None,))
    rows = Rows(torch.zeros(2, 8), torch.zeros(2, 4))
    drafter.learn(Context([1], Seeded(0)), Round((written,), other, Verdict((), (written,)), 1), rows)
    first, second = (confidence(step) for step in steps(drafter, context(LOOP), 2))
    assert (first < before[0], first > before[0]) == (goes == "down", goes == "up")
    assert second == before[1]


def test_an_answer_serves_later_requests_of_the_engine() -> None:
    make = factory()
    first = make(None)  # type: ignore[arg-type]
    asked = context([1])
    steps(first, asked)
    asked.extend([30, 31, 32, 33, 34])
    first.close()
    assert tokens(make(None), [7, 30, 31, 32]) == [33, 34]  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "remember"), [({"history": 0}, True), ({}, False)])
def test_an_answer_is_kept_only_where_both_engine_and_request_allow_it(options: dict[str, Any], remember: bool) -> None:
    make = factory(**options)
    first = make(None)  # type: ignore[arg-type]
    asked = context([1], remember=remember)
    steps(first, asked)
    asked.extend([30, 31, 32, 33, 34])
    first.close()
    assert tokens(make(None), [7, 30, 31, 32]) == []  # type: ignore[arg-type]


def test_a_prompt_is_not_kept() -> None:
    make = factory()
    first = make(None)  # type: ignore[arg-type]
    steps(first, context([30, 31, 32, 33, 34]))
    first.close()
    assert tokens(make(None), [7, 30, 31]) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"least": 0.0}, {"least": 1.0}, {"history": -1}])
def test_options_out_of_range_are_refused_with_what_is_allowed(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be (above 0|at least 0)"):
        suffix(**options)


def test_texts_do_not_depend_on_what_is_remembered() -> None:
    model = tiny_model("llama")
    prompts = [[index % 7 + 1, 5, 6, 7, 5, 6, index % 3 + 1] for index in range(12)]
    plain = [result.ids for result in forerun.load(model).generate(prompts, max_new_tokens=12)]
    engine = forerun.load(model, drafter="suffix", policy="fixed", policy_options={"k": 6})
    shuffled = [prompts[index * 5 % 12] for index in range(12)]
    for _ in range(2):
        found = engine.generate(shuffled, max_new_tokens=12)
        assert [result.ids for result in found] == [plain[index * 5 % 12] for index in range(12)]
    again = engine.generate(prompts[0], max_new_tokens=12)
    assert again.ids == plain[0]
    assert again.stats.tokens_per_round > 2


def test_drafting_costs_few_microseconds_a_token_in_a_long_text() -> None:
    text = [index * 7919 % 5003 for index in range(100_000)]
    drafter, asked = suffix(), context(text)
    steps(drafter, asked, 1)
    spent = []
    for turn in range(20):
        asked.extend([turn])
        begun = process_time()
        count = len(steps(drafter, asked))
        spent.append((process_time() - begun) / (count + 1))
    # 30 are promised; a test machine that is busy may be slow
    assert min(spent) < 100e-6


def test_a_table_is_asked_where_the_text_says_nothing(tmp_path: Path) -> None:
    answers = [Example((0, 41, 42, 43, 44, number), 1) for number in range(50, 90)]
    write_ngrams(build_table(answers, IDENTITY, held_out=0.5)[0], tmp_path / "own")
    parts: Any = SimpleNamespace(identity=IDENTITY)
    make = DRAFTERS.entry("suffix").build(parts, ngrams=str(tmp_path / "own"))
    drafter = make(None)  # type: ignore[arg-type]

    assert tokens(drafter, [1, 2, 41]) == [42, 43, 44]
    # the text goes on from there as it did before
    assert tokens(make(None), [44, 7, 8, 9, 1, 2, 41])[:4] == [42, 43, 44, 7]  # type: ignore[arg-type]
    assert tokens(suffix(), [1, 2, 41]) == []
