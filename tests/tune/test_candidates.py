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
    OFF_CONFIG,
    SHAPES,
    Candidate,
    Chosen,
    DrafterConfig,
    branched_configs,
    carved_configs,
    exit_configs,
    first_configs,
    guessed_configs,
    hybrid_configs,
    lookup_configs,
    skip_configs,
    suffix_configs,
    with_rules,
)

EXIT = exit_configs(4)[0]
LOOKUP = lookup_configs()[0]


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedOption, match=r"unknown method 'magic' to tune; known: lookup, suffix, exit, skip"):
        Chosen(("lookup", "magic"))


def test_no_method_at_all_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="at least one method"):
        Chosen(())


def test_methods_take_turns() -> None:
    configs = first_configs(Chosen(("lookup", "exit", "draft-model"), ("small",)), 8, 100, "")

    assert [config.method for config in configs[:5]] == ["lookup", "exit", "draft-model", "lookup", "exit"]


def test_only_the_chosen_methods_are_offered() -> None:
    chosen = Chosen(("adapter",), ("small",), ("there",))

    assert [config.method for config in first_configs(chosen, 8, 100, "")] == ["adapter"]


def test_skip_sets_and_hybrids_wait_for_measurements() -> None:
    assert first_configs(Chosen(("skip", "hybrid")), 8, 100, "") == []


@pytest.mark.parametrize(
    ("layers", "expected"),
    [(1, []), (2, [1]), (4, [1, 2, 3]), (12, list(range(1, 10))), (30, [1, 3, 6, 8, 10, 13, 15, 17, 20, 22])],
)
def test_exits_are_spread_over_the_first_three_quarters(layers: int, expected: list[int]) -> None:
    assert [config.options["exit_layer"] for config in exit_configs(layers)] == expected


def test_lookup_is_offered_with_several_lengths_of_ngrams() -> None:
    assert [(config.options["max_ngram"], config.options["min_ngram"]) for config in lookup_configs()] == list(NGRAMS)


@pytest.mark.parametrize(
    ("own", "expected"), [("", ["int4", "int8"]), ("bf16", ["int4", "int8"]), ("int8", ["int4"]), ("int4", [])]
)
def test_drafts_have_smaller_weights_than_the_model(own: str, expected: list[str]) -> None:
    assert [config.options["weights"] for config in carved_configs(100, own)] == expected


def test_a_large_vocabulary_is_offered_carved_too_with_its_text() -> None:
    configs = carved_configs(49152, "int8", "words.txt")

    assert [dict(config.options) for config in configs] == [
        {"weights": "int4"},
        {"weights": "int4", "vocabulary": 8192, "vocabulary_text": "words.txt"},
    ]


def test_a_set_that_skips_nothing_is_no_way() -> None:
    plans = {"nothing": LayerPlan(), "some": LayerPlan.skip(4, (2, 1), (3,))}

    (config,) = skip_configs(plans)

    assert (config.name, config.options) == ("skip some", {"skip_attention": (1, 2), "skip_mlp": (3,)})


def test_a_hybrid_is_less_simple_than_its_parts() -> None:
    (config,) = hybrid_configs(LOOKUP, [EXIT])

    assert config.options == {"of": "lookup,self", "max_ngram": 2, "min_ngram": 1, "exit_layer": 1}
    assert config.rank > max(LOOKUP.rank, EXIT.rank)


def test_suffix_is_offered_with_each_table_and_without() -> None:
    assert [(one.name, dict(one.options)) for one in suffix_configs(("own", "/some/other"))] == [
        ("suffix with own", {"ngrams": "own"}),
        ("suffix with other", {"ngrams": "/some/other"}),
        ("suffix", {}),
    ]


def test_a_draft_of_guesses_takes_the_options_of_both() -> None:
    (config,) = guessed_configs(suffix_configs(("own",))[0], [EXIT])

    assert (config.name, config.drafter) == ("exit 1, guessed by suffix with own", "guessed")
    assert config.options == {"of": "self", "ngrams": "own", "exit_layer": 1}
    assert config.rank > EXIT.rank


def test_trees_and_graphs_take_their_inner_drafters_options_in_several_sizes() -> None:
    configs = branched_configs(("tree", "graph"), [EXIT])

    assert [config.method for config in configs] == ["tree"] * len(SHAPES) + ["graph"] * len(SHAPES)
    assert [(config.options["n"], config.options["budget"]) for config in configs] == list(SHAPES) * 2
    assert configs[0].name == "tree of exit 1, 2 a node, 4 in all"
    assert {config.options["of"] for config in configs} == {"self"}
    assert {config.options["exit_layer"] for config in configs} == {1}
    assert all(config.parts == (EXIT,) for config in configs)


@pytest.mark.parametrize("method", BRANCHED)
def test_only_the_chosen_of_trees_and_graphs_are_offered(method: str) -> None:
    assert {config.method for config in branched_configs((method, "lookup"), [EXIT])} == {method}
    assert branched_configs(("lookup",), [EXIT]) == []


def test_a_tree_is_less_simple_than_what_it_branches_and_a_graph_than_a_tree() -> None:
    tree, graph = (branched_configs((method,), [EXIT])[0] for method in BRANCHED)

    assert EXIT.rank < hybrid_configs(LOOKUP, [EXIT])[0].rank < tree.rank < graph.rank


def test_a_tree_gets_its_depth_and_no_rule() -> None:
    tree = branched_configs(("tree",), [EXIT])[0]
    found = with_rules([(tree, 3), (EXIT, 2)], 9)

    assert [(one.config.method, one.policy) for one in found] == [
        ("tree", "fixed"),
        ("exit", "fixed"),
        ("exit", "cost"),
        ("exit", "governor"),
    ]


def test_nothing_is_simpler_than_off() -> None:
    offered = first_configs(Chosen(METHODS, ("small",), ("there",)), 8, 49152, "")

    assert all(OFF_CONFIG.rank < config.rank for config in offered)
    assert {config.method for config in offered} == set(METHODS) - {"skip", "guessed", "hybrid", "tree", "graph"}


def test_a_fixed_length_is_simpler_than_a_rule_and_a_rule_than_another_way() -> None:
    fixed, cost, governor = (Candidate(LOOKUP, policy) for policy in ("fixed", "cost", "governor"))

    assert fixed.rank < cost.rank < governor.rank < Candidate(EXIT, "fixed").rank


def test_every_way_gets_its_length_before_any_gets_a_rule() -> None:
    names = [(one.config.name, one.policy) for one in with_rules([(LOOKUP, 4), (EXIT, 2)], 4)]

    assert names == [
        (LOOKUP.name, "fixed"),
        (EXIT.name, "fixed"),
        (LOOKUP.name, "cost"),
        (LOOKUP.name, "governor"),
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_there_are_no_more_candidates_than_wanted(count: int) -> None:
    configs = [(DrafterConfig(f"w{n}", "exit", "self", {"exit_layer": n}), 3) for n in range(1, 4)]

    assert len(with_rules(configs, count)) == count


@pytest.mark.parametrize(
    "candidate",
    [
        OFF,
        Candidate(skip_configs({"s": LayerPlan.skip(4, (1,))})[0], "fixed", {"k": 3}),
        Candidate(hybrid_configs(LOOKUP, [EXIT])[0], "governor"),
        *(Candidate(config, "fixed", {"k": 3}) for config in branched_configs(("tree", "graph"), [EXIT])[::3]),
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
