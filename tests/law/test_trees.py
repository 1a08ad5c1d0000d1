"""The exact gate for forerun's own trees: chosen and drawn, of every drafter that branches, by confidence and budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from forerun.core.drafter import Drafter
from forerun.core.policy import LengthPolicy
from forerun.core.values import Draft, Step
from forerun.policies.fixed import Fixed
from forerun.policies.threshold import Threshold

from . import drafts, mutants
from .exact import WITH_HISTORY, Scenario, Table, TableSequence, assert_exact, branches, distance, loop, truth, written

pytestmark = pytest.mark.usefixtures("tables")

SPARSE = (0, 0, 1, 2, 3)
PAIRS = {
    "dense": (Table("p"), Table("q")),
    "zeros": (Table("p0", weights=SPARSE), Table("q0", weights=SPARSE)),
    "equal": (Table("p"), Table("p")),
    "disjoint": (Table("p4", 4, support=(0, 1)), Table("q4", 4, support=(2, 3))),
    "top-2 draft": (Table("p"), Table("q", top=2)),
    "greedy target": (Table("p", greedy=True), Table("q")),
    "greedy draft": (Table("p"), Table("p", greedy=True)),
}
INNER: dict[str, Callable[[Table], Callable[[TableSequence], Drafter]]] = {
    "draft_model": drafts.other_model,
    "state+token": drafts.ahead,
    "state": drafts.after_an_exit,
}
POLICIES: dict[str, Callable[[], LengthPolicy]] = {
    "fixed 1": lambda: Fixed(1),
    "threshold": lambda: Threshold(0.6, 2),
    "learnt": drafts.Learnt,
    "skips after zero": drafts.SkipsAfterZero,
}
# Least confidence and budget: everything; a floor that cuts some siblings; a budget that cuts a level; a chain.
SIZES = {"whole": (2, 0.0, 9), "floor": (3, 0.15, 9), "budget": (2, 0.0, 3), "chain": (1, 0.0, 9)}


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "chosen"])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_tree_leaves_the_law_as_it_is(pair: str, drawn: bool) -> None:
    target, draft = PAIRS[pair]
    assert_exact(Scenario(target, drafts.branched(drafts.chain, drawn=drawn), lambda: Fixed(2), draft, length=3))


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "chosen"])
@pytest.mark.parametrize("size", SIZES)
def test_a_tree_shaped_by_confidence_leaves_the_law_as_it_is(size: str, drawn: bool) -> None:
    target, draft = PAIRS["zeros"]
    n, least, budget = SIZES[size]
    drafter = drafts.branched(drafts.chain, n, least, budget, drawn)
    assert_exact(Scenario(target, drafter, lambda: Fixed(2), draft, length=3))


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("pair", ["dense", "zeros"])
def test_every_drafter_that_branches_leaves_the_law_as_it_is(pair: str, inner: str) -> None:
    target, draft = PAIRS[pair]
    drafter = drafts.branched(INNER[inner](draft), n=2, least=0.1)
    assert_exact(Scenario(target, drafter, lambda: Fixed(2), length=3))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stop_rule_may_look_at_all_of_a_tree(policy: str) -> None:
    target, draft = PAIRS["zeros"]
    assert_exact(Scenario(target, drafts.branched(drafts.chain, budget=4), POLICIES[policy], draft, length=3))


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "chosen"])
def test_a_law_that_depends_on_what_was_emitted_counts_a_branchs_own_tokens(drawn: bool) -> None:
    target, draft = (replace(table, penalty=2) for table in PAIRS["dense"])
    drafter = drafts.branched(drafts.chain, budget=5, drawn=drawn)
    assert_exact(Scenario(target, drafter, lambda: Fixed(2), draft, sampling=WITH_HISTORY, length=3))


@pytest.mark.parametrize("new", [2, 3])
def test_ends_of_sequence_and_of_room_leave_the_law_as_it_is(new: int) -> None:
    target, draft = PAIRS["dense"]
    ends = frozenset({1})
    drafter = drafts.branched(drafts.chain, budget=5)
    assert_exact(Scenario(target, drafter, lambda: Fixed(2), draft, eos=ends, max_new_tokens=new, length=new))


def test_the_gate_sees_siblings_that_are_drawn_and_some_that_are_not() -> None:
    target, draft = PAIRS["zeros"]
    n, least, budget = SIZES["floor"]
    widths: set[int] = set()

    class Noted(LengthPolicy):
        def should_stop(self, steps: list[Step]) -> bool:  # type: ignore[override]
            parents = Draft.of(steps).parents
            widths.update(parents.count(parent) for parent in parents)
            return len(steps) == 2

    scenario = Scenario(target, drafts.branched(drafts.chain, n, least, budget), Noted, draft)
    for _ in branches(lambda chance: loop(scenario, chance, 3)[0].ids):
        pass
    assert widths >= {1, 2}


@pytest.mark.parametrize(
    ("mutate", "moved"),
    [(mutants.unlikely_drawn_siblings_pruned, 0.193), (mutants.drawn_siblings_ranked_by_what_they_are, 0.247)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_with_drawn_siblings_moves_the_law(
    mutate: Callable[[pytest.MonkeyPatch], None], moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = PAIRS["dense"]
    scenario = Scenario(target, drafts.branched(drafts.chain), lambda: Fixed(2), draft, length=3)
    assert written(scenario) == truth(scenario)
    mutate(monkeypatch)
    assert round(float(distance(written(scenario), truth(scenario))), 3) == moved


def test_chosen_siblings_may_be_pruned_and_ranked_at_will(monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = PAIRS["dense"]
    scenario = Scenario(target, drafts.branched(drafts.chain, drawn=False), lambda: Fixed(2), draft, length=3)
    for mutate in (mutants.unlikely_drawn_siblings_pruned, mutants.drawn_siblings_ranked_by_what_they_are):
        mutate(monkeypatch)
        assert_exact(scenario)
