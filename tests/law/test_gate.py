"""The gate: over all draws and coins of several rounds, what is written follows the target's law exactly."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from forerun.core.drafter import Drafter
from forerun.core.policy import LengthPolicy
from forerun.core.values import ROOT, Draft, Step
from forerun.core.verify import verify
from forerun.drafters.lookup import Lookup
from forerun.drafters.none import NoDraft
from forerun.policies.bounded import Bounded
from forerun.policies.fixed import Fixed
from forerun.policies.heuristic import Heuristic
from forerun.policies.threshold import Threshold

from . import drafts, trained
from .exact import (
    WITH_HISTORY,
    Enumerated,
    FractionLaw,
    Scenario,
    Table,
    TableSequence,
    assert_exact,
    branches,
    loop,
    written,
)

pytestmark = pytest.mark.usefixtures("tables")

SPARSE = (0, 0, 1, 2, 3)
PAIRS: dict[str, tuple[Table, Table]] = {
    "dense": (Table("p"), Table("q")),
    "zeros": (Table("p0", weights=SPARSE), Table("q0", weights=SPARSE)),
    "four tokens": (Table("p4", 4, weights=SPARSE), Table("q4", 4, weights=SPARSE)),
    "equal": (Table("p"), Table("p")),
    "disjoint": (Table("p4", 4, support=(0, 1)), Table("q4", 4, support=(2, 3))),
    "top-2 target": (Table("p", top=2), Table("q")),
    "top-2 draft": (Table("p"), Table("q", top=2)),
    "greedy target": (Table("p", greedy=True), Table("q")),
    "greedy draft": (Table("p"), Table("p", greedy=True)),
}
POLICIES: dict[str, Callable[[], LengthPolicy]] = {
    "fixed 1": lambda: Fixed(1),
    "fixed 2": lambda: Fixed(2),
    "fixed 3": lambda: Fixed(3),
    "threshold": lambda: Threshold(0.4, 3),
    "bounded": lambda: Bounded(Threshold(0.6, 9), 1, 2),
    "heuristic": lambda: Heuristic(1, 3),
    "acceptance head": trained.acceptance_head,
    "disco": trained.disco,
    "learnt": drafts.Learnt,
    "skips after zero": drafts.SkipsAfterZero,
    "never": drafts.Never,
}
SIBLINGS = (
    drafts.two_best,
    drafts.chosen_twice,
    drafts.with_replacement,
    drafts.without_replacement,
    drafts.drawn_then_chosen,
    drafts.chosen_then_drawn,
    drafts.drawn_from_two_laws,
)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("pair", PAIRS)
def test_a_drafted_chain_leaves_the_law_as_it_is(pair: str, policy: str) -> None:
    target, draft = PAIRS[pair]
    assert_exact(Scenario(target, drafts.chain, POLICIES[policy], draft))


@pytest.mark.parametrize("siblings", SIBLINGS, ids=lambda siblings: siblings.__name__)
@pytest.mark.parametrize("pair", ["dense", "zeros", "equal", "disjoint", "top-2 target", "top-2 draft"])
def test_a_drafted_tree_leaves_the_law_as_it_is(pair: str, siblings: drafts.Siblings) -> None:
    target, draft = PAIRS[pair]
    assert_exact(Scenario(target, drafts.tree(draft, siblings), lambda: Fixed(2)))


@pytest.mark.parametrize("siblings", SIBLINGS, ids=lambda siblings: siblings.__name__)
def test_a_tree_with_several_parents_a_level_leaves_the_law_as_it_is(siblings: drafts.Siblings) -> None:
    target, draft = PAIRS["zeros"]
    assert_exact(Scenario(target, drafts.tree(draft, siblings, parents=9), lambda: Fixed(2), length=3))


@pytest.mark.parametrize("policy", ["threshold", "learnt"])
def test_a_stop_rule_may_look_at_every_token_of_a_tree(policy: str) -> None:
    target, draft = PAIRS["zeros"]
    assert_exact(Scenario(target, drafts.tree(draft, drafts.without_replacement), POLICIES[policy]))


@pytest.mark.parametrize("pair", PAIRS)
def test_another_models_drafts_leave_the_law_as_it_is(pair: str) -> None:
    target, draft = PAIRS[pair]
    assert_exact(Scenario(target, drafts.other_model(draft), lambda: Fixed(2)))


@pytest.mark.parametrize("adapter", [drafts.ahead, drafts.after_an_exit], ids=["state+token", "state"])
@pytest.mark.parametrize("pair", PAIRS)
def test_an_exit_adapters_drafts_leave_the_law_as_it_is(
    pair: str, adapter: Callable[[Table], Callable[[TableSequence], Drafter]]
) -> None:
    target, draft = PAIRS[pair]
    assert_exact(Scenario(target, adapter(draft), lambda: Fixed(2)))


@pytest.mark.parametrize("drafter", [lambda target: Lookup(2, 1), lambda target: NoDraft()], ids=["lookup", "none"])
@pytest.mark.parametrize("pair", ["dense", "zeros", "greedy target"])
def test_tokens_copied_from_the_text_leave_the_law_as_it_is(
    pair: str, drafter: Callable[[TableSequence], Drafter]
) -> None:
    assert_exact(Scenario(PAIRS[pair][0], drafter, lambda: Fixed(3), length=6))


@pytest.mark.parametrize("pair", ["dense", "zeros"])
def test_a_law_that_depends_on_what_was_emitted_counts_the_drafted_tokens_too(pair: str) -> None:
    target, draft = PAIRS[pair]
    target, draft = replace(target, penalty=3), replace(draft, penalty=2)
    for drafter in (
        drafts.chain,
        drafts.other_model(draft),
        drafts.ahead(draft),
        drafts.tree(draft, drafts.with_replacement),
    ):
        assert_exact(Scenario(target, drafter, lambda: Fixed(2), draft, sampling=WITH_HISTORY))


@pytest.mark.parametrize("policy", ["fixed 3", "learnt"])
def test_text_ends_after_an_end_of_sequence_wherever_it_was_drafted(policy: str) -> None:
    target, draft = PAIRS["dense"]
    ends = frozenset({1, 2})
    assert_exact(Scenario(target, drafts.chain, POLICIES[policy], draft, eos=ends))
    assert_exact(Scenario(target, drafts.tree(draft, drafts.with_replacement), lambda: Fixed(2), eos=ends))


@pytest.mark.parametrize("new", [2, 3, 4])
def test_a_draft_cut_for_want_of_room_leaves_the_law_as_it_is(new: int) -> None:
    target, draft = PAIRS["dense"]
    assert_exact(Scenario(target, drafts.chain, POLICIES["fixed 3"], draft, max_new_tokens=new, length=new))


def test_a_mixed_vocabulary_is_no_obstacle() -> None:
    small, large = Table("small", 3, weights=SPARSE), Table("large", 5, weights=SPARSE)
    assert_exact(Scenario(large, drafts.other_model(small), lambda: Fixed(2)))
    assert_exact(Scenario(small, drafts.other_model(large), lambda: Fixed(2)))


def test_verify_by_itself_is_exact_where_one_node_holds_every_kind_of_child() -> None:
    p, q = FractionLaw([3, 1, 0, 2]), FractionLaw([1, 2, 1, 0])

    def round(chance: Enumerated) -> int:
        tokens = (1, chance.propose(q, 0, 0, 0), 0, chance.propose(q, 0, 0, 1), 1)
        draft = Draft(tokens, (ROOT,) * 5, (None, q, None, q, None))
        return verify(draft, lambda row, drafted: p, chance, 0).tokens[0]

    law = [Fraction(0)] * 4
    for token, weight, _ in branches(round):
        law[token] += weight
    assert tuple(law) == p.probs


def test_the_enumeration_covers_everything_once() -> None:
    target, draft = PAIRS["zeros"]
    assert sum(written(Scenario(target, drafts.chain, drafts.Learnt, draft)).values()) == 1


def test_a_number_that_decides_twice_decides_alike() -> None:
    def twice(chance: Enumerated) -> tuple[bool, bool]:
        return chance.accept(Fraction(1, 3), 0, 0), chance.accept(Fraction(1, 2), 0, 0)

    law = {both: weight for both, weight, _ in branches(twice)}
    assert law == {(True, True): Fraction(1, 3), (False, True): Fraction(1, 6), (False, False): Fraction(1, 2)}


def test_the_tables_have_tokens_that_only_one_side_allows() -> None:
    for target, draft in (PAIRS["zeros"], PAIRS["four tokens"]):
        texts = [(9, 0, a, b) for a in range(target.vocabulary) for b in range(target.vocabulary)]
        laws = [(target.law(text), draft.law(text)) for text in texts]
        assert any(p.probability(t) == 0 < q.probability(t) for p, q in laws for t in range(target.vocabulary))
        assert any(q.probability(t) == 0 < p.probability(t) for p, q in laws for t in range(target.vocabulary))


@pytest.mark.parametrize("name", ["acceptance head", "disco"])
def test_the_trained_rules_stop_early_and_late(name: str) -> None:
    """So that the gate sees them decide: drafts of several lengths come up, by what was drafted."""
    target, draft = PAIRS["dense"]
    lengths = set()

    def run(chance: Enumerated) -> int:
        policy = POLICIES[name]()
        steps: list[Step] = []

        class Noted(LengthPolicy):
            def should_stop(self, given: Sequence[Step]) -> bool:
                steps[:] = given
                return policy.should_stop(given)

        loop(Scenario(target, drafts.chain, Noted, draft), chance, 2)
        return len(steps)

    for length, _, _ in branches(run):
        lengths.add(length)
    assert len(lengths) >= 2
