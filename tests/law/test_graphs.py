"""The exact gate for merged drafts, and the lossy rule, which fails it and is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from forerun.core.law import Law
from forerun.core.policy import LengthPolicy
from forerun.core.values import ROOT, Draft, Step
from forerun.core.verify import Rule, verify
from forerun.drafters.branching.graph_lossy import stochastic
from forerun.policies.fixed import Fixed
from forerun.policies.threshold import Threshold

from . import drafts
from .exact import WITH_HISTORY, Enumerated, FractionLaw, Scenario, Table, assert_exact, branches, loop, written

pytestmark = pytest.mark.usefixtures("tables")

SPARSE = (0, 0, 1, 2, 3)
PAIRS = {
    "dense": (Table("p"), Table("q")),
    "zeros": (Table("p0", weights=SPARSE), Table("q0", weights=SPARSE)),
    "disjoint": (Table("p4", 4, support=(0, 1)), Table("q4", 4, support=(2, 3))),
    "greedy target": (Table("p", greedy=True), Table("q")),
    "greedy draft": (Table("p"), Table("p", greedy=True)),
}
POLICIES: dict[str, Callable[[], LengthPolicy]] = {
    "threshold": lambda: Threshold(0.6, 3),
    "learnt": drafts.Learnt,
    "skips after zero": drafts.SkipsAfterZero,
}


@pytest.mark.parametrize("m", [-1, 0, 1])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_graph_leaves_the_law_as_it_is(pair: str, m: int) -> None:
    target, draft = PAIRS[pair]
    assert_exact(Scenario(target, drafts.merged(drafts.chain, m), lambda: Fixed(3), draft))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stop_rule_may_look_at_all_of_a_graph(policy: str) -> None:
    target, draft = PAIRS["zeros"]
    assert_exact(Scenario(target, drafts.merged(drafts.chain, 0, leaf=0.4), POLICIES[policy], draft))


@pytest.mark.parametrize("inner", [drafts.other_model, drafts.ahead, drafts.after_an_exit])
def test_every_drafter_that_branches_leaves_the_law_as_it_is(inner: Callable[[Table], Callable[..., object]]) -> None:
    target, draft = PAIRS["dense"]
    assert_exact(Scenario(target, drafts.merged(inner(draft), 0, budget=6), lambda: Fixed(3)))  # type: ignore[arg-type]


def test_a_law_that_depends_on_what_was_emitted_and_ends_of_sequence_are_no_obstacle() -> None:
    target, draft = (replace(table, penalty=2) for table in PAIRS["dense"])
    drafter = drafts.merged(drafts.chain, 0)
    assert_exact(Scenario(target, drafter, lambda: Fixed(3), draft, sampling=WITH_HISTORY, eos=frozenset({2})))


def test_the_gate_sees_nodes_that_are_merged() -> None:
    target, draft = PAIRS["dense"]
    merged: set[int] = set()

    class Noted(LengthPolicy):
        def should_stop(self, steps: list[Step]) -> bool:  # type: ignore[override]
            merged.add(Draft.of(steps).counts.merged)
            return len(steps) == 3

    scenario = Scenario(target, drafts.merged(drafts.chain, 0), Noted, draft)
    for _ in branches(lambda chance: loop(scenario, chance, 3)[0].ids):
        pass
    assert max(merged) >= 2


def first_token(p: FractionLaw, draft: Draft, rule: Rule) -> tuple[Fraction, ...]:
    law = [Fraction(0)] * len(p.probs)
    rest = FractionLaw([1] * len(p.probs))

    def row_law(row: int, drafted: tuple[int, ...]) -> Law:
        return rest if drafted else p

    def token(chance: Enumerated) -> int:
        return rule(draft, row_law, chance, 0).tokens[0]

    for written_token, weight, _ in branches(token):
        law[written_token] += weight
    return tuple(law)


def test_the_stochastic_rule_is_lossy_even_for_the_targets_own_law() -> None:
    """Two best tokens of the right law: each passes for sure, so the third, half as likely as they are, is never written."""
    p = FractionLaw([2, 2, 1])
    draft = Draft((0, 1), (ROOT, ROOT), (p, p))
    assert first_token(p, draft, stochastic) == (1, 0, 0)
    chosen = Draft((0, 1), (ROOT, ROOT), (None, None))
    assert first_token(p, chosen, verify) == p.probs


def test_the_gate_refuses_a_lossy_drafter() -> None:
    target, draft = PAIRS["dense"]
    lossy = drafts.merged(drafts.chain, verification="stochastic-lossy")
    with pytest.raises(AssertionError, match="a GraphDraft with a rule of its own is lossy"):
        written(Scenario(target, lossy, lambda: Fixed(2), draft))
