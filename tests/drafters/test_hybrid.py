from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import torch

from forerun import load
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.forward import Rows
from forerun.core.identity import Identity
from forerun.core.values import ROOT, Context, Draft, Round, Step, Verdict
from forerun.drafters.base import DRAFTERS, Parts
from forerun.drafters.branching.graph_lossy import stochastic
from forerun.drafters.hybrid import Hybrid
from forerun.errors import UnsupportedOption
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.testing import tiny_model

IDS = [1, 2, 3]


class Scripted(Drafter):
    """Drafts these tokens as a chain; remembers what happens to it."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = tokens
        self.happened: list[str] = []

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self.happened.append("asked")
        try:
            for node, token in enumerate(self.tokens):
                yield Step((token,), (node - 1,), (None,))
        finally:
            self.happened.append("ended")

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        self.happened.append("learnt")

    def close(self) -> None:
        self.happened.append("closed")


@pytest.fixture(scope="module")
def parts() -> Parts:
    small = SequencePool(HFRunner(tiny_model("llama", seed=7, num_hidden_layers=1)), drafting=True)
    identity = Identity("llama", 4, 32, 97, "0" * 16)
    return Parts(SequencePool(HFRunner(tiny_model("llama"))), identity, None, lambda model: (small, None))


def built(parts: Parts, **options: Any) -> Drafter:
    return DRAFTERS.check("hybrid", options).build(parts, **options)(parts.target.acquire())


def drafted(drafter: Drafter) -> list[tuple[int, int]]:
    """(token, parent) of a whole draft."""
    return [(step.tokens[0], step.parents[0]) for step in drive(drafter.draft(Context(list(IDS), Seeded(0))))]


def test_what_the_first_one_finds_is_the_whole_draft() -> None:
    first, then = Scripted(4, 5), Scripted(6, 7)
    assert drafted(Hybrid(first, then)) == [(4, ROOT), (5, 0)]
    assert (first.happened, then.happened) == (["asked", "ended"], [])


def test_where_the_first_one_finds_nothing_the_other_one_drafts() -> None:
    first, then = Scripted(), Scripted(6, 7)
    assert drafted(Hybrid(first, then)) == [(6, ROOT), (7, 0)]
    assert (first.happened, then.happened) == (["asked", "ended"], ["asked", "ended"])


def test_where_both_find_nothing_nothing_is_drafted() -> None:
    assert drafted(Hybrid(Scripted(), Scripted())) == []


def test_every_round_asks_anew() -> None:
    first, then = Scripted(4), Scripted(6)
    hybrid = Hybrid(first, then)
    seen = []
    for first.tokens in [(4,), (), (5,)]:
        seen += drafted(hybrid)
    assert [token for token, _ in seen] == [4, 6, 5]


@pytest.mark.parametrize("tokens", [(4, 5), ()])
def test_a_draft_that_is_cut_short_ends_the_one_inside_at_once(tokens: tuple[int, ...]) -> None:
    first, then = Scripted(*tokens), Scripted(6, 7)
    steps = Hybrid(first, then).draft(Context(list(IDS), Seeded(0)))
    with pytest.raises(StopIteration):
        anext(steps).send(None)
    with pytest.raises(StopIteration):
        steps.aclose().send(None)
    asked = first if tokens else then
    assert asked.happened == ["asked", "ended"]


def test_both_learn_from_every_round_whoever_drafted() -> None:
    first, then = Scripted(4), Scripted(6)
    verdict = Verdict((), (9,))
    rows = Rows(torch.zeros(1, 8), torch.zeros(1, 4))
    Hybrid(first, then).learn(Context(IDS, Seeded(0)), Round((9,), Draft(), verdict, 3), rows)
    assert (first.happened, then.happened) == (["learnt"], ["learnt"])


def test_the_layers_that_either_reads_are_tapped() -> None:
    first, then = Scripted(4), Scripted(6)
    assert Hybrid(first, then).taps == frozenset()
    first.taps, then.taps = frozenset({2}), frozenset({2, 4})
    assert Hybrid(first, then).taps == {2, 4}


def test_it_is_lossy_where_the_other_one_is() -> None:
    first, then = Scripted(4), Scripted(6)
    assert Hybrid(first, then).rule is None
    then.rule = stochastic
    assert Hybrid(first, then).rule is stochastic


def test_closing_it_closes_both() -> None:
    first, then = Scripted(4), Scripted(6)
    Hybrid(first, then).close()
    assert (first.happened, then.happened) == (["closed"], ["closed"])


def test_each_drafter_gets_its_own_options(parts: Parts) -> None:
    text = [7, 1, 50, 8, 1]

    def tokens(**options: Any) -> list[int]:
        drafter = built(parts, then="none", **options)
        return [step.tokens[0] for step in drive(drafter.draft(Context(list(text), Seeded(0))))]

    assert tokens() == [50, 8, 1]
    assert tokens(min_ngram=2) == []
    with pytest.raises(ValueError, match=r"exit_layer must be in 1..3 for a model of 4 layers, got 9"):
        built(parts, then="self", exit_layer=9, min_ngram=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "drafter 'hybrid' needs option 'then': Lookup where it finds a match"),
        ({"then": "magic"}, "unknown drafter 'magic'; known: cascade, draft_model, .*lookup"),
        ({"then": "hybrid"}, "then must be a drafter other than 'hybrid' and 'lookup', got 'hybrid'"),
        ({"then": "lookup"}, "then must be a drafter other than 'hybrid' and 'lookup', got 'lookup'"),
        ({"then": "draft_model"}, "drafter 'draft_model' needs option 'model'"),
        ({"then": "self", "model": "x"}, "has no option 'model'; its options: then, max_ngram, min_ngram, exit_layer"),
        ({"then": "self", "min_ngram": 9}, "min_ngram must be in 1..max_ngram, got min_ngram 9"),
    ],
)
def test_what_can_not_be_built_is_refused(parts: Parts, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        built(parts, **options)


def test_an_option_that_both_have_is_refused(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRAFTERS, "_entries", dict(DRAFTERS._entries))

    @DRAFTERS("similar", source="")
    def similar(parts: Parts, *, min_ngram: int = 1) -> Any: ...

    with pytest.raises(
        UnsupportedOption, match="can't assign the option 'min_ngram': both 'lookup' and 'similar' have one"
    ):
        built(parts, then="similar", min_ngram=2)


@pytest.mark.parametrize(
    "options",
    [
        {"then": "self", "exit_layer": 3},
        {"then": "draft_model", "model": "small"},
        {"then": "tree", "of": "self", "exit_layer": 3, "min_confidence": 0.0},
        {"then": "graph", "of": "draft_model", "model": "small", "m": 0, "leaf": 0.0},
    ],
)
def test_rounds_that_the_other_one_sat_out_do_not_confuse_it(options: dict[str, Any]) -> None:
    model, small = tiny_model("llama"), tiny_model("llama", seed=7, num_hidden_layers=1)
    given = {name: small if value == "small" else value for name, value in options.items()}
    prompt = [5, 6, 7, 8, 5, 6]
    engine = load(model, drafter="hybrid", drafter_options=given)
    mixed = engine.generate(prompt, max_new_tokens=60)
    lookup = load(model, drafter="lookup").generate(prompt, max_new_tokens=60)
    assert mixed.ids == load(model).generate(prompt, max_new_tokens=60).ids
    assert mixed.stats.drafted > lookup.stats.drafted > 0
