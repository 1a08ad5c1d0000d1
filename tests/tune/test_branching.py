"""Trees and graphs that a reading stands for, grown by hand; test_screening holds them against real ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forerun.core.cost import Cost, Point
from forerun.tune.branching import grown, prices_of
from forerun.tune.candidates import BRANCHED, DrafterConfig, branched_configs, exit_configs

EXIT = exit_configs(4)[0]
# after the pending token 5 is likely, 6 less so; after the answer's first token 7 and 8 are equally likely
RANKINGS = [[(5, 0.6), (6, 0.3), (9, 0.1)], [(7, 0.5), (8, 0.5)], [(4, 1.0)]]
FREE = (0.0,) * 30


def way_of(method: str = "tree", **options: Any) -> DrafterConfig:
    (config, *_) = branched_configs((method,), [EXIT])
    return replace(config, options={**config.options, "n": 2, **options})


def test_levels_are_grown_as_the_drafter_grows_them() -> None:
    draft = grown(RANKINGS, (6, 8, 4), way_of(), FREE)

    assert [level.tokens for level in draft.levels] == [(5, 6), (7, 8, 7, 8), (4, 4, 4, 4)]
    assert [level.parents for level in draft.levels] == [(-1, -1), (0, 0, 1, 1), (2, 3, 4, 5)]
    assert [level.forwards for level in draft.levels] == [(1,), (2,), (4,)]
    assert draft.left == ()


@pytest.mark.parametrize(("follow", "path"), [((6, 8, 4), (1, 5, 9)), ((5, 7, 3), (0, 2)), ((9,), ()), ((5,), (0,))])
def test_the_path_is_the_answers(follow: tuple[int, ...], path: tuple[int, ...]) -> None:
    assert grown(RANKINGS, follow, way_of(), FREE).path == path


def test_a_budget_ends_the_draft_without_a_forward_in_vain() -> None:
    draft = grown(RANKINGS, (5, 7, 4), way_of(), (0.0,) * 3)

    assert [level.tokens for level in draft.levels] == [(5, 6), (7,)]
    assert draft.left == ()


def test_a_level_whose_children_are_all_too_dear_is_a_forward_in_vain() -> None:
    draft = grown(RANKINGS, (5, 7, 4), way_of(), (0.5,) * 9)

    assert [level.tokens for level in draft.levels] == [(5,)]
    assert draft.left == (1,)


def test_a_graph_drops_unlikely_siblings_and_does_not_go_on_after_unlikely_tokens() -> None:
    draft = grown(RANKINGS, (5, 7, 4), way_of("graph", sibling=0.5, leaf=0.4), FREE)

    assert [level.tokens for level in draft.levels] == [(5, 6), (7, 8), (4, 4)], "6 is below leaf"
    assert grown(RANKINGS, (5, 7), way_of("graph", sibling=0.6), FREE).levels[0].tokens == (5,)


@pytest.mark.parametrize("method", BRANCHED)
def test_prices_are_those_of_the_kept_costs_and_the_ways_own_least(method: str) -> None:
    cost = Cost("tiny", "HFRunner", "float32", "full", (Point(1, 0, 10.0), Point(9, 0, 18.0)))
    (config, *_) = branched_configs((method,), [EXIT])

    assert prices_of(config, None) == (0.05,) * 4
    assert prices_of(config, cost) == pytest.approx((0.1,) * 4)
