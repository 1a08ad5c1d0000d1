"""The exact gate under a mask: what is written follows the law of the masked model, whatever is drafted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from forerun.core.constraint import Constraint
from forerun.core.drafter import Drafter
from forerun.core.policy import LengthPolicy
from forerun.core.values import Step
from forerun.drafters.cascade import Cascade
from forerun.drafters.lookup import Lookup
from forerun.drafters.none import NoDraft
from forerun.policies.fixed import Fixed
from forerun.policies.threshold import Threshold

from . import drafts, mutants
from .constraints import Rule, TableConstraint, constrained, often_forced, soon_complete, two_of_three
from .exact import (
    WITH_HISTORY,
    Enumerated,
    Scenario,
    Table,
    TableSequence,
    assert_exact,
    distance,
    loop,
    truth,
    written,
)

pytestmark = pytest.mark.usefixtures("tables")

P, Q = Table("p"), Table("q")
SPARSE = Table("q0", weights=(0, 0, 1, 2, 3))
RULES: dict[str, Rule] = {"two": two_of_three, "forced": often_forced, "complete": soon_complete}
Make = Callable[[TableSequence], Drafter]
DRAFTERS: dict[str, Make] = {
    "none": lambda target: NoDraft(),
    "chain": drafts.chain,
    "another model": drafts.other_model(Q),
    "another sparse model": drafts.other_model(SPARSE),
    "adapter": drafts.after_an_exit(Q),
    "lookup": lambda target: Lookup(2, 1),
    "first found": lambda target: Cascade((Lookup(2, 1), drafts.chain(target)), ("lookup", "chain"), None),
    "drawn tree": drafts.branched(drafts.chain),
    "chosen tree": drafts.branched(drafts.chain, drawn=False),
    "graph": drafts.merged(drafts.chain),
    # these know nothing of the mask
    "unmasked, chosen": drafts.tree(Q, drafts.two_best),
    "unmasked, drawn": drafts.tree(Q, drafts.with_replacement),
    "unmasked, drawn without replacement": drafts.tree(Q, drafts.without_replacement),
    "unmasked, drawn and chosen": drafts.tree(Q, drafts.drawn_then_chosen),
    "unmasked, chosen and drawn, two parents": drafts.tree(Q, drafts.chosen_then_drawn, parents=2),
}


def scenario(rule: Rule, drafter: Make, **changes: Any) -> Scenario:
    return replace(Scenario(P, drafter, lambda: Fixed(2), Q, constraint=constrained(rule), length=3), **changes)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_leaves_the_masked_law_as_it_is(drafter: str, rule: str) -> None:
    assert_exact(scenario(RULES[rule], DRAFTERS[drafter]))


@pytest.mark.parametrize("rule", RULES)
def test_longer_chains_under_a_stop_rule_leave_it_as_it_is(rule: str) -> None:
    assert_exact(scenario(RULES[rule], drafts.chain, policy=lambda: Threshold(0.4, 3), length=4))
    assert_exact(scenario(RULES[rule], drafts.chain, policy=drafts.Learnt, length=4))


def test_penalties_and_ends_of_sequence_leave_it_as_it_is() -> None:
    penalised = {"target": replace(P, penalty=3), "drafts": replace(Q, penalty=2), "sampling": WITH_HISTORY}
    for rule in RULES.values():
        assert_exact(scenario(rule, drafts.chain, **penalised))
        assert_exact(scenario(rule, drafts.chain, eos=frozenset({1})))
        assert_exact(scenario(rule, drafts.branched(drafts.chain), max_new_tokens=2, length=2))


def test_the_rules_forbid_and_force_and_end() -> None:
    """So that the gate sees all of it."""
    texts = [(0, a, b) for a in range(3) for b in range(3)]
    assert {len(often_forced(text)) for text in texts} == {1, 2}
    assert all(len(two_of_three(text)) == 2 for text in texts)
    lengths = {len(text) for text in truth(scenario(soon_complete, drafts.chain))}
    assert lengths == {2, 3}
    plain, held = (
        truth(replace(scenario(two_of_three, drafts.chain), constraint=None)),
        truth(scenario(two_of_three, drafts.chain)),
    )
    assert set(held) < set(plain)


def test_forced_tokens_are_drafted_without_policy_and_drafter_and_all_accepted() -> None:
    def one_way(text: tuple[int, ...]) -> frozenset[int]:
        return frozenset({(2 * len(text)) % 3})

    class Asked(LengthPolicy):
        def should_stop(self, steps: Sequence[Step]) -> bool:
            raise AssertionError("the policy was asked although tokens are forced")

    forced = scenario(one_way, drafts.chain, policy=Asked, max_new_tokens=6)
    context, _ = loop(forced, Enumerated([]), rounds=2)
    assert context.ids[1:] == [0, 2, 1, 0, 2, 1]


MISTAKES = [
    ("drafted unmasked and cut by what was drawn", mutants.forbidden_drawn_token_dropped, 0.146),
    ("mask of the round's beginning for all rows", mutants.mask_frozen_at_the_round_start, 0.418),
    ("drafts drawn from the masked law, verified with the raw one", mutants.draft_law_without_its_mask, 0.292),
]


@pytest.mark.parametrize(("mutate", "moved"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES])
def test_a_mistake_with_the_mask_moves_the_law(
    mutate: Callable[[pytest.MonkeyPatch], None], moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = drafts.tree(Q, drafts.one_drawn) if mutate is mutants.forbidden_drawn_token_dropped else drafts.chain
    right = scenario(two_of_three, drafter)
    assert written(right) == truth(right)
    mutate(monkeypatch)
    assert round(float(distance(written(right), truth(right))), 3) == moved


def test_a_table_constraint_says_the_same_in_every_way() -> None:
    for rule in RULES.values():
        constraint: Constraint = TableConstraint(rule)
        constraint.emit([0])
        for drafted in ((), (1,), (2,), (1, 0)):
            allowed = constraint.allowed(drafted)
            assert constraint.completes(drafted) == (allowed is None)
            assert [token for token in range(3) if constraint.permits(drafted, token)] == sorted(allowed or ())  # type: ignore[type-var]
