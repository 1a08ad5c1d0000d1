from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.engine.system.file import read_system, write_system
from forerun.engine.system.value import target_of
from forerun.errors import UnsupportedOption
from forerun.models.packed.plan import LayerPlan
from forerun.testing import tiny_model
from forerun.tune.candidates import (
    BRANCHED,
    METHODS,
    NGRAMS,
    OFF,
    OFF_WAY,
    SHAPES,
    Candidate,
    Chosen,
    Way,
    branched_ways,
    carved_ways,
    exit_ways,
    first_ways,
    hybrid_ways,
    lookup_ways,
    skip_ways,
    with_rules,
)

EXIT = exit_ways(4)[0]
LOOKUP = lookup_ways()[0]


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedOption, match=r"unknown method 'magic' to tune; known: lookup, exit, skip"):
        Chosen(("lookup", "magic"))


def test_no_method_at_all_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="at least one method"):
        Chosen(())


def test_methods_take_turns() -> None:
    ways = first_ways(Chosen(("lookup", "exit", "draft-model"), ("small",)), 8, 100, "")

    assert [way.method for way in ways[:5]] == ["lookup", "exit", "draft-model", "lookup", "exit"]


def test_only_the_chosen_methods_are_offered() -> None:
    chosen = Chosen(("adapter",), ("small",), ("there",))

    assert [way.method for way in first_ways(chosen, 8, 100, "")] == ["adapter"]


def test_skip_sets_and_hybrids_wait_for_measurements() -> None:
    assert first_ways(Chosen(("skip", "hybrid")), 8, 100, "") == []


@pytest.mark.parametrize(
    ("layers", "expected"),
    [(1, []), (2, [1]), (4, [1, 2, 3]), (12, list(range(1, 10))), (30, [1, 3, 6, 8, 10, 13, 15, 17, 20, 22])],
)
def test_exits_are_spread_over_the_first_three_quarters(layers: int, expected: list[int]) -> None:
    assert [way.options["exit_layer"] for way in exit_ways(layers)] == expected


def test_lookup_is_offered_with_several_lengths_of_ngrams() -> None:
    assert [(way.options["max_ngram"], way.options["min_ngram"]) for way in lookup_ways()] == list(NGRAMS)


@pytest.mark.parametrize(
    ("own", "expected"), [("", ["int4", "int8"]), ("bf16", ["int4", "int8"]), ("int8", ["int4"]), ("int4", [])]
)
def test_drafts_have_smaller_weights_than_the_model(own: str, expected: list[str]) -> None:
    assert [way.options["weights"] for way in carved_ways(100, own)] == expected


def test_a_large_vocabulary_is_offered_carved_too_with_its_text() -> None:
    ways = carved_ways(49152, "int8", "words.txt")

    assert [dict(way.options) for way in ways] == [
        {"weights": "int4"},
        {"weights": "int4", "vocabulary": 8192, "vocabulary_text": "words.txt"},
    ]


def test_a_set_that_skips_nothing_is_no_way() -> None:
    plans = {"nothing": LayerPlan(), "some": LayerPlan.skip(4, (2, 1), (3,))}

    (way,) = skip_ways(plans)

    assert (way.name, way.options) == ("skip some", {"skip_attention": (1, 2), "skip_mlp": (3,)})


def test_a_hybrid_is_less_simple_than_its_parts() -> None:
    (way,) = hybrid_ways(LOOKUP, [EXIT])

    assert way.options == {"then": "self", "max_ngram": 2, "min_ngram": 1, "exit_layer": 1}
    assert way.rank > max(LOOKUP.rank, EXIT.rank)


def test_trees_and_graphs_take_their_inner_drafters_options_in_several_sizes() -> None:
    ways = branched_ways(("tree", "graph"), [EXIT])

    assert [way.method for way in ways] == ["tree"] * len(SHAPES) + ["graph"] * len(SHAPES)
    assert [(way.options["n"], way.options["budget"]) for way in ways] == list(SHAPES) * 2
    assert ways[0].name == "tree of exit 1, 2 a node, 4 in all"
    assert {way.options["of"] for way in ways} == {"self"}
    assert {way.options["exit_layer"] for way in ways} == {1}
    assert all(way.parts == (EXIT,) for way in ways)


@pytest.mark.parametrize("method", BRANCHED)
def test_only_the_chosen_of_trees_and_graphs_are_offered(method: str) -> None:
    assert {way.method for way in branched_ways((method, "lookup"), [EXIT])} == {method}
    assert branched_ways(("lookup",), [EXIT]) == []


def test_a_tree_is_less_simple_than_what_it_branches_and_a_graph_than_a_tree() -> None:
    tree, graph = (branched_ways((method,), [EXIT])[0] for method in BRANCHED)

    assert EXIT.rank < hybrid_ways(LOOKUP, [EXIT])[0].rank < tree.rank < graph.rank


def test_a_tree_gets_its_depth_and_no_rule() -> None:
    tree = branched_ways(("tree",), [EXIT])[0]
    found = with_rules([(tree, 3), (EXIT, 2)], 9)

    assert [(one.way.method, one.policy) for one in found] == [
        ("tree", "fixed"),
        ("exit", "fixed"),
        ("exit", "cost"),
        ("exit", "governor"),
    ]


def test_nothing_is_simpler_than_off() -> None:
    offered = first_ways(Chosen(METHODS, ("small",), ("there",)), 8, 49152, "")

    assert all(OFF_WAY.rank < way.rank for way in offered)
    assert {way.method for way in offered} == set(METHODS) - {"skip", "hybrid", "tree", "graph"}


def test_a_fixed_length_is_simpler_than_a_rule_and_a_rule_than_another_way() -> None:
    fixed, cost, governor = (Candidate(LOOKUP, policy) for policy in ("fixed", "cost", "governor"))

    assert fixed.rank < cost.rank < governor.rank < Candidate(EXIT, "fixed").rank


def test_every_way_gets_its_length_before_any_gets_a_rule() -> None:
    names = [(one.way.name, one.policy) for one in with_rules([(LOOKUP, 4), (EXIT, 2)], 4)]

    assert names == [
        (LOOKUP.name, "fixed"),
        (EXIT.name, "fixed"),
        (LOOKUP.name, "cost"),
        (LOOKUP.name, "governor"),
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_there_are_no_more_candidates_than_wanted(count: int) -> None:
    ways = [(Way(f"w{n}", "exit", "self", {"exit_layer": n}), 3) for n in range(1, 4)]

    assert len(with_rules(ways, count)) == count


@pytest.mark.parametrize(
    "candidate",
    [
        OFF,
        Candidate(skip_ways({"s": LayerPlan.skip(4, (1,))})[0], "fixed", {"k": 3}),
        Candidate(hybrid_ways(LOOKUP, [EXIT])[0], "governor"),
        *(Candidate(way, "fixed", {"k": 3}) for way in branched_ways(("tree", "graph"), [EXIT])[::3]),
    ],
)
def test_a_candidate_becomes_a_system_that_runs(candidate: Candidate, tmp_path: Path) -> None:
    engine = forerun.load(tiny_model("llama"))
    file = tmp_path / "system.json"
    measured: dict[str, Any] = {"speedup": 1.5}

    write_system(candidate.system(target_of(engine, "tiny"), {"cores": 2}, measured), file)
    system = read_system(file)

    assert (system.name, system.measured) == (candidate.name, measured)
    assert system.method() == {**candidate.parts()}
    ids = [5, 6, 7, 5, 6]
    assert system.method_on(engine).generate(ids, max_new_tokens=8).ids == engine.generate(ids, max_new_tokens=8).ids
