"""Trees of real tiny models: what they hold, how they are shaped, and that the text is the target's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import Engine, load
from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.values import ROOT, Context, Draft, DraftCounts, Sampling
from forerun.errors import UnsupportedOption
from forerun.models.packed.sequence import Sequence as TokenSequence
from forerun.testing import save_tiny, save_tiny_adapter, tiny_model

from .branched import IDS, drafted, paths
from .carving import only_token_250

WARM = Sampling(temperature=1.0)
WIDE: dict[str, Any] = {"n": 3, "min_confidence": 0.0, "budget": 40}


@cache
def target() -> Any:
    return tiny_model("llama")


@cache
def small() -> Any:
    return tiny_model("llama", seed=7, num_hidden_layers=1)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("adapters")
    kinds = (("state", 2), ("state+token", 4))
    return {kind: str(save_tiny_adapter(place / kind, target(), layer, kind)) for kind, layer in kinds}


def tree(of: str = "draft_model", **options: Any) -> Engine:
    if of == "draft_model":
        options = {"model": small(), **options}
    return load(target(), drafter="tree", drafter_options={"of": of, **options}, policy_options={"k": 3})


def row_of(model: Any, ids: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        row: torch.Tensor = model(torch.tensor([list(ids)]), use_cache=False).logits[0, -1]
    return row


def test_a_nodes_children_are_its_rows_best_tokens() -> None:
    draft = Draft.of(drafted(tree(**WIDE), 3))
    known = [(), *paths(draft)]
    inner = [node for node in range(-1, len(draft)) if node in draft.parents]
    assert len(draft) == 3 + 9 + 27
    for node in inner:
        children = [token for token, parent in zip(draft.tokens, draft.parents, strict=True) if parent == node]
        assert sorted(children) == sorted(row_of(small(), [*IDS, *known[node + 1]]).topk(3).indices.tolist())


def test_each_nodes_row_is_the_one_that_it_follows() -> None:
    for step_number, step in enumerate(drafted(tree(**WIDE), 3)):
        draft = Draft.of(drafted(tree(**WIDE), step_number + 1))
        known = [(), *paths(draft)]
        assert step.logits is not None
        assert step.hidden is not None
        assert len(step.hidden) == len(step.tokens)
        for row, parent in zip(step.logits, step.parents, strict=True):
            torch.testing.assert_close(row, row_of(small(), [*IDS, *known[parent + 1]]), atol=1e-4, rtol=1e-4)


def test_the_budget_holds_the_most_confident_nodes_of_a_level() -> None:
    whole, cut = drafted(tree(**WIDE), 2), drafted(tree(**{**WIDE, "budget": 6}), 2)
    assert [len(step.tokens) for step in cut] == [3, 3]
    first = {token: float(p) for token, p in enumerate(row_of(small(), IDS).softmax(-1))}

    def confidence(token: int, parent: int) -> float:
        return first[cut[0].tokens[parent]] * float(row_of(small(), [*IDS, cut[0].tokens[parent]]).softmax(-1)[token])

    all_of_it = sorted((confidence(t, p) for t, p in zip(whole[1].tokens, whole[1].parents, strict=True)), reverse=True)
    kept = [confidence(token, parent) for token, parent in zip(cut[1].tokens, cut[1].parents, strict=True)]
    assert kept == pytest.approx(all_of_it[:3])


def test_nodes_below_the_least_confidence_are_not_chosen() -> None:
    probabilities = row_of(small(), IDS).softmax(-1)
    least = float(probabilities.topk(2).values[1]) * 0.999
    step = drafted(tree(n=5, min_confidence=least), 1)[0]
    assert list(step.tokens) == probabilities.topk(2).indices.tolist()


def test_nothing_is_drafted_where_no_token_is_confident_enough() -> None:
    assert drafted(tree(min_confidence=1.0), 9) == []


def test_one_child_a_node_is_the_chain_that_the_drafter_would_have_drafted() -> None:
    chain = load(target(), drafter="draft_model", drafter_options={"model": small()})
    for sampling in (Sampling(), WARM):
        one = drafted(tree(n=1, min_confidence=0.0), 5, sampling)
        other = drafted(chain, 5, sampling)
        assert [step.tokens for step in one] == [step.tokens for step in other]
        assert [step.parents for step in one] == [step.parents for step in other]
        assert [step.counts for step in one] == [step.counts for step in other] == [DraftCounts(1)] * 5


def test_above_temperature_zero_siblings_are_drawn_without_replacement() -> None:
    draft = Draft.of(drafted(tree(**WIDE), 3, WARM))
    assert None not in draft.laws
    for node in {*draft.parents}:
        children = [i for i, parent in enumerate(draft.parents) if parent == node]
        tokens = [draft.tokens[child] for child in children]
        assert len(set(tokens)) == len(tokens) == 3
        for place, child in enumerate(children):
            law = draft.laws[child]
            assert law is not None
            assert law.probability(draft.tokens[child]) > 0
            assert [law.probability(token) for token in tokens[:place]] == [0] * place


def test_siblings_may_be_chosen_above_temperature_zero_too() -> None:
    draft = Draft.of(drafted(tree(**WIDE, siblings="chosen"), 3, WARM))
    assert set(draft.laws) == {None}
    assert draft.tokens == Draft.of(drafted(tree(**WIDE), 3)).tokens


def test_a_level_draws_each_of_its_tokens_with_a_number_of_its_own() -> None:
    flat = tiny_model("llama", seed=7, num_hidden_layers=1)
    torch.nn.init.zeros_(flat.lm_head.weight)
    draft = Draft.of(drafted(tree(model=flat, n=3, min_confidence=0.0, budget=40), 2, WARM))
    assert len(set(draft.tokens)) > 6


def test_a_token_that_ends_the_text_has_no_children() -> None:
    first = drafted(tree(**WIDE), 1)[0].tokens
    draft = Draft.of(drafted(tree(**WIDE), 2, eos=frozenset(first[1:2])))
    assert set(draft.parents[3:]) == {0, 2}


def test_a_branch_counts_its_own_tokens_for_penalties() -> None:
    penalised = Sampling(presence_penalty=50.0)
    draft = Draft.of(drafted(tree(n=3, min_confidence=0.0, budget=40), 3, penalised))
    for path in paths(draft):
        assert len(set(path)) == len(path)


def test_the_tree_ends_where_the_draft_models_context_does() -> None:
    short = tiny_model("llama", seed=1, max_position_embeddings=9)
    assert len(drafted(tree(model=short, n=2, min_confidence=0.0), 9, ids=[*IDS, 1, 2])) == 2
    assert drafted(tree(model=short, n=2), 9, ids=[*IDS, 1, 2, 3, 4]) == []


@pytest.mark.parametrize(
    ("of", "options"),
    [
        ("draft_model", {}),
        ("self", {"exit_layer": 2}),
        ("self", {"skip_attention": (1,), "skip_mlp": (1, 2)}),
        ("exit_adapter", {"adapter": "state"}),
        ("exit_adapter", {"adapter": "state+token"}),
    ],
)
@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "drawn"])
def test_a_branch_has_the_rows_that_a_chain_of_its_tokens_has(
    of: str, options: dict[str, Any], sampling: Sampling, adapters: dict[str, str]
) -> None:
    """Whatever stands beside it: the rows of each branch are those after its own tokens alone."""
    given = {name: adapters[value] if name == "adapter" else value for name, value in options.items()}
    engine = tree(of, **given, **WIDE)
    last = drafted(engine, 3, sampling)[-1]
    assert last.logits is not None
    draft = Draft.of(drafted(engine, 2, sampling))
    for i, parent in enumerate(last.parents):
        path = paths(draft)[parent]

        async def rows(path: tuple[int, ...] = path) -> AsyncGenerator[torch.Tensor]:
            with engine.borrow(IDS) as (sequence, drafter):
                await sequence.sync(IDS[:-1], drafter.taps)
                inner = vars(drafter)["inner"]
                await inner.begin(Context(list(IDS), Seeded(0), sampling))
                for node, token in enumerate(path):
                    children = await inner.extend([token], [node - 1])
                assert children is not None
                yield children.logits[-1]

        torch.testing.assert_close(last.logits[i], next(drive(rows())), atol=1e-4, rtol=1e-4)


def test_a_self_drafted_tree_is_completed_from_its_exit_states(monkeypatch: pytest.MonkeyPatch) -> None:
    resumed: list[int] = []
    real = TokenSequence._resumable

    def counted(self: TokenSequence, tokens: Any, parents: Any) -> Any:
        enter, entry = real(self, tokens, parents)
        resumed.append(len(entry))
        return enter, entry

    monkeypatch.setattr(TokenSequence, "_resumable", counted)
    result = tree("self", exit_layer=2, n=2, min_confidence=0.0).generate(IDS, max_new_tokens=12)
    assert result.ids == load(target()).generate(IDS, max_new_tokens=12).ids
    # the pending token, two children, their four children
    assert max(resumed) == 7


def test_a_good_tree_gains_more_tokens_a_round_than_its_chain() -> None:
    near = tiny_model("llama")
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for parameter in near.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    chain = load(target(), drafter="draft_model", drafter_options={"model": near}, policy_options={"k": 3})
    wide = tree(model=near, **WIDE)
    for options in ({}, {"temperature": 1.0, "seed": 5}):
        one = chain.generate(IDS, max_new_tokens=120, **options).stats
        other = wide.generate(IDS, max_new_tokens=120, **options).stats
        assert other.tokens_per_round > one.tokens_per_round + 0.2


def test_a_vocabulary_that_the_processors_empty_ends_the_tree(tmp_path: Path) -> None:
    options = {"of": "self", "vocabulary": 100}
    engine = load(save_tiny(tmp_path / "model"), drafter="tree", drafter_options=options)
    result = engine.generate("abc", max_new_tokens=5, processors=[only_token_250])
    assert set(result.ids) == {250}
    assert result.stats.drafted == 0


def test_it_reads_a_text_as_the_drafter_that_it_branches() -> None:
    async def rows(engine: Engine) -> AsyncGenerator[torch.Tensor]:
        with engine.borrow(IDS) as (_, drafter):
            yield (await drafter.read(IDS, 4)).logits

    chain = load(target(), drafter="draft_model", drafter_options={"model": small()})
    torch.testing.assert_close(next(drive(rows(tree()))), next(drive(rows(chain))))
    assert tree("self", exit_layer=2).pair == load(target(), drafter="self", drafter_options={"exit_layer": 2}).pair


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "drafter 'tree' needs option 'of'"),
        ({"of": "magic"}, "unknown drafter 'magic'; known: auto, cascade, draft_model"),
        (
            {"of": "lookup"},
            "drafter 'tree' can't branch drafter 'lookup', which gives no probabilities; draft with draft_model, self",
        ),
        ({"of": "none"}, "drafter 'tree' can't branch drafter 'none'"),
        ({"of": "hybrid", "then": "self"}, "drafter 'tree' can't branch drafter 'hybrid'"),
        ({"of": "tree"}, "drafter 'tree' needs option 'of'"),
        ({"of": "draft_model"}, "drafter 'draft_model' needs option 'model'"),
        ({"of": "self", "model": "x"}, "drafter 'self' has no option 'model'"),
        ({"of": "self", "exit_layer": 9}, "exit_layer must be in 1..3"),
        ({"of": "self", "n": 0}, "n must be at least 1 child a node, got 0"),
        ({"of": "self", "n": -1}, "n must be at least 1 child a node, got -1"),
        ({"of": "self", "siblings": "both"}, "siblings must be one of drawn, chosen, got 'both'"),
        ({"of": "self", "budget": 256}, "budget must be at most 255 nodes, since the cache of"),
        ({"of": "self", "budget": -1}, "budget must be at least 0 nodes"),
        ({"of": "self", "min_confidence": 1.5}, r"min_confidence must be in \[0, 1\], got 1.5"),
        ({"of": "self", "costs": "/no/such/file"}, "costs must be a file of measured costs"),
    ],
)
def test_what_can_not_be_built_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(target(), drafter="tree", drafter_options=options)


def test_a_drafter_without_a_law_says_so_where_it_is_asked_to_branch() -> None:
    async def begun() -> AsyncGenerator[Any]:
        with load(target(), drafter="lookup").borrow(IDS) as (_, drafter):
            yield await drafter.begin(Context(list(IDS), Seeded(0)))

    async def extended() -> AsyncGenerator[Any]:
        with load(target(), drafter="lookup").borrow(IDS) as (_, drafter):
            yield await drafter.extend([1], [ROOT])

    for source in (begun(), extended()):
        with pytest.raises(
            UnsupportedOption, match="a Lookup gives no probabilities to branch from; draft with draft_model"
        ):
            next(drive(source))
