from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

import forerun
from forerun.core.chance import Seeded
from forerun.core.cost import Cost, Point
from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.identity import Identity
from forerun.core.values import ROOT, Context, Draft, Round, Verdict
from forerun.drafters.base import DRAFTERS, DrafterFactory, Parts
from forerun.drafters.recycle import MOST_REJECTED
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence as TokenSequence
from forerun.testing import tiny_model

from .test_suffix import steps

VOCABULARY = 97


@cache
def runner() -> HFRunner:
    return HFRunner(tiny_model("llama"), "tiny")


def factory(**options: Any) -> DrafterFactory:
    identity = Identity("llama", 4, 32, VOCABULARY, "0" * 16)
    parts = Parts(SequencePool(runner()), identity, None, lambda name: pytest.fail(name))
    return DRAFTERS.entry("recycle").build(parts, **options)


def recycle(make: DrafterFactory | None = None, **options: Any) -> Drafter:
    return (make or factory(**options))(TokenSequence(runner()))


def context(*ids: int, **options: Any) -> Context:
    return Context(list(ids), Seeded(0), **options)


def row(*best: int) -> list[float]:
    """Logits whose best tokens are these, in this order, the first far the best."""
    logits = [0.0] * VOCABULARY
    for rank, token in enumerate(best):
        logits[token] = 20.0 if rank == 0 else 16.0 - rank
    return logits


def finish(
    drafter: Drafter, asked: Context, written: list[int], *rows: list[float], draft: Draft | None = None, path: Any = ()
) -> None:
    """A round that wrote these tokens from these rows."""
    start = len(asked.ids)
    asked.extend(written)
    logits = torch.tensor(rows)
    round = Round(tuple(written), draft or Draft(), Verdict(tuple(path), tuple(written)), start)
    drafter.learn(asked, round, Rows(logits, logits))


def taught(make: DrafterFactory, *texts: tuple[int, ...], times: int = 1, **options: Any) -> None:
    """Requests in which the model wrote these texts token by token, sure of each."""
    for text in texts * times:
        drafter, asked = recycle(make), context(text[0], **options)
        for token in text[1:]:
            finish(drafter, asked, [token], row(token))
        drafter.close()


def tokens(drafter: Drafter, *ids: int, most: int = 12) -> list[tuple[int, ...]]:
    return [step.tokens for step in steps(drafter, context(*ids), most)]


def test_what_the_model_found_best_after_the_same_tokens_is_drafted() -> None:
    make = factory(n=1)
    taught(make, (1, 2, 3, 4, 5), times=3)
    assert tokens(recycle(make), 1, 2) == [(3,), (4,), (5,)]


def test_an_unknown_token_drafts_nothing() -> None:
    make = factory()
    assert tokens(recycle(make), 1) == []
    taught(make, (1, 2, 3))
    assert tokens(recycle(make), 1, 9) == []


def test_two_tokens_decide_where_they_are_known_and_else_the_last_one() -> None:
    make = factory(n=1)
    taught(make, (1, 2, 30), (5, 2, 40), times=9)
    assert tokens(recycle(make), 1, 2) == [(30,)]
    assert tokens(recycle(make), 5, 2) == [(40,)]
    assert tokens(recycle(make), 9, 2) == [(40,)]


def test_a_tree_has_the_likeliest_nodes_of_each_level_and_chosen_tokens() -> None:
    make = factory(n=2, min_confidence=0.0)
    drafter, asked = recycle(make), context(1)
    finish(drafter, asked, [2], row(2, 3))
    finish(drafter, asked, [4], row(4, 5))
    found = steps(recycle(make), context(9, 1))
    assert [step.tokens for step in found[:2]] == [(2, 3), (4, 5)]
    assert [step.parents for step in found[:2]] == [(ROOT, ROOT), (0, 0)]
    assert all(set(step.laws) == {None} and step.logits is None for step in found)
    Draft.of(found)


def test_a_level_is_as_likely_as_its_nodes_together() -> None:
    make = factory(min_confidence=0.02)
    taught(make, (1, 2, 3), times=20)
    (likely,) = [step.confidence for step in steps(recycle(make), context(1))[:1]]
    assert likely is not None
    assert 0.9 < likely <= 1


def test_nodes_are_taken_down_to_min_confidence_and_up_to_the_budget() -> None:
    for options, most in (({"min_confidence": 0.4}, 2), ({"min_confidence": 0.0, "budget": 5}, 5)):
        make = factory(**options)
        taught(make, (1, 2, 1, 2, 1, 2), times=2)
        drafted = [token for step in tokens(recycle(make), 1) for token in step]
        assert 0 < len(drafted) <= most


def test_rows_that_cost_as_much_as_plain_steps_are_not_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    make = factory()
    taught(make, (1, 2, 3, 4, 5), times=9)
    free, dear = (
        Cost("tiny", "HFRunner", "float32", "full", tuple(Point(rows, 0, ms) for rows, ms in points))
        for points in (((1, 10.0), (8, 10.1)), ((1, 10.0), (8, 80.0)))
    )
    monkeypatch.setattr(runner(), "cost", free)
    assert tokens(recycle(make), 1)
    monkeypatch.setattr(runner(), "cost", dear)
    assert tokens(recycle(make), 1) == []


def test_n_of_1_is_a_chain() -> None:
    make = factory(n=1, min_confidence=0.0)
    drafter, asked = recycle(make), context(1)
    finish(drafter, asked, [2], row(2, 3, 4))
    finish(drafter, asked, [3], row(3, 4))
    assert tokens(recycle(make), 1) == [(2,), (3,)]


def test_the_end_of_a_text_is_not_continued() -> None:
    make = factory(n=1)
    taught(make, (1, 2, 3), times=9)
    found = steps(recycle(make), context(1, eos=frozenset({2})))
    assert [step.tokens for step in found] == [(2,)]


def test_rejected_drafts_teach_of_their_own_tokens_and_the_texts_own_rows_stay() -> None:
    make = factory(n=1)
    drafter, asked = recycle(make), context(1)
    # 5 and 6 follow the pending 1, and 1 follows the 6: the verified row of 1 is the one that is kept
    draft = Draft((5, 6, 1), (ROOT, ROOT, 1), (None,) * 3)
    rows = row(5), row(50), row(60), row(70)
    finish(drafter, asked, [5, 50], *rows, draft=draft, path=[0])
    assert tokens(recycle(make), 9, 1, most=1) == [(5,)]
    assert tokens(recycle(make), 1, 5, most=1) == [(50,)]
    assert tokens(recycle(make), 1, 6, most=1) == [(60,)]
    assert tokens(recycle(make), 6, 1, most=1) == [(70,)]


def test_of_many_rejected_rows_some_are_read() -> None:
    make = factory(n=1)
    many = MOST_REJECTED + 4
    draft = Draft(tuple(range(10, 10 + many)), (ROOT,) * many, (None,) * many)
    finish(recycle(make), context(1), [2], row(2), *[row(3)] * many, draft=draft)
    known = [token for token in draft.tokens if tokens(recycle(make), 1, token, most=1)]
    assert known == list(range(10, 10 + MOST_REJECTED))


def test_rows_without_a_softmax_are_passed_over() -> None:
    make = factory()
    finish(recycle(make), context(1), [2], [float("nan")] * VOCABULARY)
    assert tokens(recycle(make), 1) == []


def test_ranks_that_are_never_right_are_drafted_no_more() -> None:
    make = factory()
    taught(make, (1, 2))
    assert tokens(recycle(make), 1)
    drafter = recycle(make)
    for _ in range(40):
        finish(drafter, context(1), [3], row(2))
    assert tokens(recycle(make), 1) == []


def test_a_request_that_is_not_remembered_leaves_nothing_and_drafts_from_its_own_and_earlier_rows() -> None:
    make = factory(n=1)
    taught(make, (1, 2, 30), times=9)
    private = recycle(make)
    asked = context(5, remember=False)
    for token in (6, 7, 5):
        finish(private, asked, [token], row(token))
    assert [step.tokens for step in steps(private, asked, 1)] == [(6,)]
    assert tokens(private, 1, 2, most=1) == [(30,)]
    private.close()
    assert tokens(recycle(make), 4, 5) == []
    assert tokens(recycle(make), 5, 6) == []


def test_of_its_own_and_earlier_rows_those_of_two_tokens_come_first() -> None:
    make = factory(n=1)
    taught(make, (1, 2, 30), times=9)
    private, asked = recycle(make), context(8, 2, remember=False)
    finish(private, asked, [40], row(40))
    assert tokens(private, 1, 2, most=1) == [(30,)]
    assert tokens(private, 8, 2, most=1) == [(40,)]
    assert tokens(private, 9, 2, most=1) == [(40,)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 0}, "n must be 1 to 8"),
        ({"n": 9}, "n must be 1 to 8"),
        ({"pairs": -1}, "pairs must be at least 0"),
        ({"budget": -1}, "budget must be at least 0"),
        ({"min_confidence": 1.5}, r"min_confidence must be in \[0, 1\]"),
    ],
)
def test_options_out_of_range_are_refused_with_what_is_allowed(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        factory(**options)


def test_a_model_that_repeats_itself_needs_fewer_rounds_for_the_same_text() -> None:
    engine = forerun.load(tiny_model("llama"), drafter="recycle", policy_options={"k": 6})
    plain = forerun.load(tiny_model("llama")).generate([5, 6, 7], max_new_tokens=60)
    first = engine.generate([5, 6, 7], max_new_tokens=60)
    again = engine.generate([5, 6, 7], max_new_tokens=60)
    assert first.ids == again.ids == plain.ids
    assert again.stats.tokens_per_round > 2


def test_texts_do_not_depend_on_what_is_kept() -> None:
    model = tiny_model("llama")
    prompts = [[index % 7 + 1, 5, 6, 7, 5, 6, index % 3 + 1] for index in range(12)]
    for sampling in ({}, {"temperature": 0.9, "seed": 5}):
        plain = [result.ids for result in forerun.load(model).generate(prompts, max_new_tokens=12, **sampling)]
        engine = forerun.load(model, drafter="recycle", policy_options={"k": 4})
        shuffled = [prompts[index * 5 % 12] for index in range(12)]
        for remember in (True, False, True):
            found = engine.generate(shuffled, max_new_tokens=12, remember=remember, **sampling)
            assert [result.ids for result in found] == [plain[index * 5 % 12] for index in range(12)]
