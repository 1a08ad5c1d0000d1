"""Graphs of real tiny models: unrolled as they should be, cheaper to draft than their trees, and as exact."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import cache
from typing import Any

import pytest
import torch

from forerun import Engine, load
from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.values import ROOT, Context, Draft, Sampling
from forerun.models.packed.sequence import Sequence as TokenSequence
from forerun.testing import tiny_model

from .branched import IDS, drafted, paths

WIDE: dict[str, Any] = {"n": 3, "sibling": 0.0, "leaf": 0.0, "min_confidence": 0.0, "budget": 60}


@cache
def target() -> Any:
    return tiny_model("llama")


@cache
def repetitive() -> Any:
    """A draft that says the same few words again and again, whatever comes before."""
    model = tiny_model("llama", seed=7, num_hidden_layers=1)
    with torch.no_grad():
        model.lm_head.weight[12:] *= 0.1
    return model


def made(drafter: str = "graph", **options: Any) -> Engine:
    given = {"of": "draft_model", "model": repetitive(), **options}
    return load(target(), drafter=drafter, drafter_options=given, policy_options={"k": 3})


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_k=9)], ids=["greedy", "sampled"])
def test_without_merging_and_thresholds_it_is_the_plain_tree(sampling: Sampling) -> None:
    one = drafted(made(m=-1, **WIDE), 4, sampling=sampling)
    tree = {name: WIDE[name] for name in ("n", "min_confidence", "budget")}
    other = drafted(made("tree", siblings="chosen", **tree), 4, sampling=sampling)
    assert [(step.tokens, step.parents, step.laws, step.counts) for step in one] == [
        (step.tokens, step.parents, step.laws, step.counts) for step in other
    ]
    for step, same in zip(one, other, strict=True):
        torch.testing.assert_close(step.logits, same.logits)
        torch.testing.assert_close(step.hidden, same.hidden)


def test_merged_nodes_are_unrolled_with_all_that_is_drafted_after_them() -> None:
    draft = Draft.of(drafted(made(m=0, **WIDE), 4))
    assert draft.counts.merged > 0
    assert len(set(paths(draft))) == len(draft)
    followers: dict[int, set[frozenset[int]]] = {}
    depths = [len(path) for path in paths(draft)]
    for node, token in enumerate(draft.tokens):
        if depths[node] < 3:
            children = {draft.tokens[i] for i, parent in enumerate(draft.parents) if parent == node}
            followers.setdefault(token, set()).add(frozenset(children))
    # the first two levels of this draft hold a word once, so its copies have its children
    assert any(len(sets) < draft.tokens.count(token) for token, sets in followers.items())


def test_children_of_a_node_are_different_tokens() -> None:
    for m in (-1, 0, 1):
        draft = Draft.of(drafted(made(m=m, **WIDE), 5))
        pairs = list(zip(draft.parents, draft.tokens, strict=True))
        assert len(set(pairs)) == len(pairs)


def test_the_rows_that_merging_saves_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    real = TokenSequence.forward

    async def counted(self: TokenSequence, tokens: Any, *given: Any, **more: Any) -> Any:
        computed.append(len(tokens))
        return await real(self, tokens, *given, **more)

    monkeypatch.setattr(TokenSequence, "forward", counted)
    rows: dict[int, int] = {}
    for m in (-1, 1, 0):
        engine = made(m=m, **WIDE)
        computed.clear()
        steps = drafted(engine, 4)
        counts = Draft.of(steps).counts
        rows[m] = sum(computed)
        inner = len({parent for step in steps for parent in step.parents if parent != ROOT})
        assert rows[m] + counts.saved >= inner
        assert counts.forwards == 1 + len(computed)
    assert rows[0] < rows[1] <= rows[-1]


def test_a_level_of_merged_nodes_alone_costs_no_forward() -> None:
    """One word again and again: the second of two equal words links to the first only if that isn't before it."""
    steps = drafted(made(m=0, **{**WIDE, "n": 2, "budget": 200}), 8)
    efforts = [step.counts for step in steps]
    assert all(counts.forwards <= 1 for counts in efforts)
    assert all(step.forward_seconds == 0 for step in steps if not step.counts.forwards)
    assert sum(counts.saved for counts in efforts) > 0


def test_a_level_holds_the_rows_that_its_nodes_come_from() -> None:
    for step in drafted(made(m=0, **WIDE), 4):
        assert step.logits is not None
        for token, row in zip(step.tokens, step.logits, strict=True):
            assert token in row.topk(3).indices.tolist()


def test_unlikely_siblings_are_left_out() -> None:
    best = drafted(made(m=-1, **{**WIDE, "sibling": 0.0}), 1)[0]
    assert best.logits is not None
    shares = best.logits[0].softmax(-1)[list(best.tokens)]
    between = float((shares[1] + shares[2]) / 2 / shares[0])
    assert drafted(made(m=-1, **{**WIDE, "sibling": between}), 1)[0].tokens == best.tokens[:2]
    assert drafted(made(m=-1, **{**WIDE, "sibling": 1.0}), 1)[0].tokens == best.tokens[:1]


def test_nothing_is_drafted_after_an_unlikely_token() -> None:
    best = drafted(made(m=-1, **WIDE), 1)[0]
    assert best.logits is not None
    shares = best.logits[0].softmax(-1)[list(best.tokens)]
    between = float(shares[0] + shares[1]) / 2
    steps = drafted(made(m=-1, **{**WIDE, "leaf": between}), 2)
    assert len(steps[0].tokens) == 3
    assert set(steps[1].parents) == {0}
    assert len(drafted(made(m=-1, **{**WIDE, "leaf": 1.0}), 9)) == 1


def test_the_budget_counts_unrolled_nodes() -> None:
    assert len(Draft.of(drafted(made(m=0, **{**WIDE, "budget": 17}), 99))) == 17


def test_a_draft_ends_where_the_room_does() -> None:
    result = made(m=0, **WIDE).using(
        "graph", drafter_options={"of": "draft_model", "model": repetitive(), "m": 0, **WIDE}, policy_options={"k": 9}
    )
    for new in (1, 2, 3, 7):
        assert len(result.generate(IDS, max_new_tokens=new).ids) == new


def test_a_token_that_ends_the_text_has_no_children() -> None:
    end = drafted(made(m=0, **WIDE), 1)[0].tokens[0]
    draft = Draft.of(drafted(made(m=0, **WIDE), 4, eos=frozenset({end})))
    ends = {node for node, token in enumerate(draft.tokens) if token == end}
    assert ends
    assert not ends & set(draft.parents)


def test_a_branch_counts_its_own_tokens_for_penalties() -> None:
    draft = Draft.of(drafted(made(m=-1, **WIDE), 3, sampling=Sampling(presence_penalty=50.0)))
    assert all(len(set(path)) == len(path) for path in paths(draft))


@pytest.mark.parametrize("m", [-1, 0, 1])
def test_the_text_is_the_targets_own_greedy_and_sampled(m: int) -> None:
    plain, graph = load(target()), made(m=m, **WIDE)
    prompts = [IDS, [1], [2, 3] * 9]
    for options in ({}, {"temperature": 0.8, "seed": 3}):
        expected = [result.ids for result in plain.generate(prompts, max_new_tokens=20, **options)]
        assert [result.ids for result in graph.generate(prompts, max_new_tokens=20, **options)] == expected


def test_drafting_with_the_target_itself_a_plain_tree_accepts_a_whole_path() -> None:
    stats = made(model=target(), m=-1, **WIDE).generate(IDS, max_new_tokens=21).stats
    assert stats.acceptance_per_position == (1.0, 1.0, 1.0)
    assert stats.merged == stats.rows_saved == 0


def test_statistics_tell_what_merging_did() -> None:
    stats = made(m=0, **WIDE).generate(IDS, max_new_tokens=30).stats
    assert 0 < stats.merged < stats.drafted
    assert stats.rows_saved > 0
    assert stats.draft_forwards <= 3 * stats.rounds
    assert stats.rows_verified == stats.drafted + stats.rounds


def test_the_draft_ends_where_the_draft_models_context_does() -> None:
    short = tiny_model("llama", seed=1, max_position_embeddings=9)
    engine = made(model=short, m=-1, **WIDE)
    ids = [*IDS, 1]

    async def steps(text: list[int]) -> AsyncGenerator[int]:
        with engine.borrow(text) as (sequence, drafter):
            await sequence.sync(text[:-1])
            yield len([step async for step in drafter.draft(Context(list(text), Seeded(0)))])

    assert next(drive(steps(ids))) == 3


def test_nothing_is_drafted_where_no_token_is_confident_enough() -> None:
    assert drafted(made(min_confidence=1.0), 9) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "drafter 'graph' needs option 'of'"),
        ({"of": "lookup"}, "drafter 'graph' can't branch drafter 'lookup', which gives no probabilities"),
        ({"of": "self", "n": 0}, "n must be at least 1 child a node, got 0"),
        ({"of": "self", "m": -2}, r"m must be at least -1 \(-1 never merges\), got -2"),
        ({"of": "self", "sibling": 1.1}, r"sibling must be in \[0, 1\], got 1.1"),
        ({"of": "self", "sibling": -0.1}, r"sibling must be in \[0, 1\], got -0.1"),
        ({"of": "self", "leaf": 2.0}, r"leaf must be in \[0, 1\], got 2.0"),
        ({"of": "self", "leaf": -1.0}, r"leaf must be in \[0, 1\], got -1.0"),
        ({"of": "self", "budget": 256}, "budget must be at most 255 nodes, since the cache of"),
        ({"of": "self", "min_confidence": -1.0}, r"min_confidence must be in \[0, 1\], got -1.0"),
        ({"of": "self", "verification": "lossy"}, "verification must be one of exact, stochastic-lossy, got 'lossy'"),
    ],
)
def test_what_can_not_be_built_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(target(), drafter="graph", drafter_options=options)
