"""The graph itself: what merges, what doesn't, and that no path runs in a circle."""

from __future__ import annotations

import random

import pytest

from forerun.core.values import ROOT
from forerun.drafters.branching.graph_nodes import Graph

A, B, C, D = range(4)
TEXT = (9, 8)


def grown(m: int, *paths: tuple[int, ...], text: tuple[int, ...] = TEXT) -> Graph:
    """A graph in which these paths were followed one after the other."""
    graph = Graph(text, m)
    for path in paths:
        walk(graph, path)
    return graph


def walk(graph: Graph, path: tuple[int, ...]) -> list[tuple[int, bool]]:
    node, steps = ROOT, []
    for token in path:
        node, new = graph.follow(node, token)
        steps.append((node, new))
    return steps


def test_a_new_token_is_a_new_node_after_its_parent() -> None:
    graph = grown(0, (A, B))
    assert len(graph) == 2
    assert [graph.parent(node) for node in range(2)] == [ROOT, 0]
    assert [graph.path(node) for node in (ROOT, 0, 1)] == [(), (A,), (A, B)]
    assert graph.children(0) == {B: 1}


def test_a_path_that_was_followed_before_is_found_again() -> None:
    graph = grown(-1, (A, B))
    assert walk(graph, (A, B)) == [(0, False), (1, False)]
    assert len(graph) == 2


def test_a_recurring_token_is_merged_with_all_that_comes_after_it() -> None:
    graph = grown(0, (A, C, D), (B,))
    assert walk(graph, (B, C, D)) == [(3, False), (1, False), (2, False)]
    assert graph.path(1) == (A, C)


def test_more_tokens_before_it_must_be_shared_where_m_is_larger() -> None:
    assert walk(grown(1, (A, C, D), (B,)), (B, C)) == [(3, False), (4, True)]
    assert walk(grown(1, (A, C, D), (B,)), (B, C, D))[2] == (2, False)
    assert walk(grown(2, (A, C, D), (B,)), (B, C, D))[2] == (5, True)


def test_nothing_is_merged_where_m_is_minus_one() -> None:
    graph = grown(-1, (A, C, D), (B, C, D), (C, D))
    assert len(graph) == 8


def test_tokens_before_the_draft_count_as_those_of_the_root() -> None:
    graph = Graph((C, A), 1)
    walk(graph, (B,))
    assert walk(graph, (D, A, B))[2] == (0, False)
    other = Graph((C, D), 1)
    walk(other, (B,))
    assert walk(other, (D, A, B))[2] == (3, True)


def test_a_node_may_link_to_several_others() -> None:
    graph = grown(0, (A, C), (A, D), (B,))
    assert walk(graph, (B, C))[1] == (1, False)
    assert walk(graph, (B, D))[1] == (2, False)
    assert graph.children(3) == {C: 1, D: 2}


def test_a_token_that_repeats_on_its_own_path_is_a_node_of_its_own() -> None:
    graph = grown(0, (A, A, A))
    assert len(graph) == 3


def test_a_link_never_closes_a_circle_through_other_links() -> None:
    """B leads to A through a link, so after A the token B is not the first B."""
    graph = grown(0, (A,), (B, A))
    assert graph.children(1) == {A: 0}
    assert walk(graph, (A, B))[1] == (2, True)


def reachable(graph: Graph, node: int) -> set[int]:
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        for child in graph.children(waiting.pop()).values():
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    return seen


@pytest.mark.parametrize("m", [-1, 0, 1, 2])
@pytest.mark.parametrize("seed", range(15))
def test_any_graph_is_free_of_circles_and_spells_its_links(m: int, seed: int) -> None:
    dice = random.Random(seed)
    graph = Graph(TEXT, m)
    tokens: dict[int, int] = {}
    for _ in range(120):
        node = ROOT
        for _ in range(dice.randint(1, 7)):
            token = dice.randrange(3)
            node, new = graph.follow(node, token)
            assert new == (node not in tokens)
            assert tokens.setdefault(node, token) == token
    for node in range(ROOT, len(graph)):
        assert node not in reachable(graph, node)
        for token, child in graph.children(node).items():
            assert tokens[child] == token
            before = (*TEXT, *graph.path(node), token)[-m - 1 :]
            assert m < 0 or (*TEXT, *graph.path(child))[-m - 1 :] == before


def test_a_circle_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "_above", lambda self, node: {node})
    graph = grown(0, (A,), (B, A), (A, B))
    assert 0 in reachable(graph, 0)
