"""A replay has the rounds of the real run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.identity import Pair
from forerun.core.policy import LengthPolicy
from forerun.core.values import Context, Round, Step
from forerun.drafters.branches import Branched
from forerun.engine.methods import policy_factory
from forerun.engine.stats import Stats
from forerun.policies.fixed import Fixed
from forerun.testing import tiny_model
from forerun.traces.read import Trace
from forerun.tune.replay.oracle import oracle
from forerun.tune.replay.round_costs import RoundCosts, calibrated, constant
from forerun.tune.replay.simulate import Replay

from ..traced import NEW, PAIR, adapter_of, by_hand, engine_with, model, traced
from ..trees import AS_A_CHAIN, WIDE, branching, chain_of

# a hybrid chooses by the clock
DRAFTERS = ("lookup", "self", "draft_model")
POLICIES: list[tuple[str, Mapping[str, Any]]] = [
    ("fixed", {"k": 1}),
    ("fixed", {"k": 4}),
    ("fixed", {"k": 6}),
    ("threshold", {"confidence": 0.3, "max_steps": 6}),
    ("threshold", {"confidence": 0.6, "max_steps": 4}),
    ("heuristic", {"k": 2, "max_steps": 6}),
    ("confidence_product", {"max_steps": 6}),
    ("entropy", {"max_steps": 6}),
    ("roc", {"max_steps": 6}),
    ("adaptive", {"max_steps": 6}),
]


@pytest.fixture(scope="module", params=DRAFTERS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[forerun.Engine, Trace]:
    engine = engine_with(request.param)
    return engine, traced(engine, tmp_path_factory.mktemp("traces") / "trace.jsonl", request.param)


def real_rounds(engine: forerun.Engine, trace: Trace) -> list[list[Round]]:
    """One prompt after the other, in the trace's order, as a replay goes."""
    return [
        list(drive(engine.rounds(Context(list(one.prompt), Seeded(0), max_new_tokens=NEW, eos=engine.eos))))
        for one in trace.answers
    ]


def lengths(rounds: list[Round]) -> list[tuple[object, ...]]:
    return [
        (one.start, len(one.draft), len(one.verdict.path), one.tokens, len(one.verdict.tokens), one.held_back)
        for one in rounds
    ]


class Watched(LengthPolicy):
    """Another policy, and the rounds that it is shown."""

    def __init__(self, inner: LengthPolicy, seen: list[Round]) -> None:
        self._inner, self._seen = inner, seen

    def begin(self, unread: int, room: int, copies: bool = False) -> None:
        self._inner.begin(unread, room, copies)

    def should_stop(self, steps: Any) -> bool:
        return self._inner.should_stop(steps)

    def leaves_out(self, steps: Any) -> bool:
        return self._inner.leaves_out(steps)

    def observe(self, steps: Any, round: Round) -> None:
        self._seen.append(round)
        self._inner.observe(steps, round)


@pytest.mark.parametrize(("inputs", "exit_layer"), [("state", 2), ("state+token", 4)])
def test_adapters_that_read_the_targets_states_are_traced_as_they_draft(
    tmp_path: Path, inputs: str, exit_layer: int
) -> None:
    target = model()
    adapter = adapter_of(target, tmp_path, inputs, exit_layer)
    engine = forerun.load(target, drafter="exit_adapter", drafter_options={"adapter": str(adapter)})
    trace = traced(engine, tmp_path / "t.jsonl", "exit_adapter")
    assert max(one.agreed for answer in trace.answers for one in answer.positions) > 1
    for name, options in POLICIES[1:4]:
        make, seen = policy_factory(name, options), []
        Replay(trace, constant(0.1)).policy(lambda make=make, seen=seen: Watched(make(), seen))
        real = real_rounds(engine.using(engine.drafter, name, policy_options=options), trace)
        assert lengths(seen) == lengths([one for rounds in real for one in rounds if not one.prefill])


@pytest.mark.parametrize(("name", "options"), POLICIES, ids=str)
def test_a_replay_has_the_rounds_of_the_real_run(
    made: tuple[forerun.Engine, Trace], name: str, options: Mapping[str, Any]
) -> None:
    engine, trace = made
    real = real_rounds(engine.using(engine.drafter, name, policy_options=options), trace)
    make, seen = policy_factory(name, options), []
    found = Replay(trace, constant(0.1)).policy(lambda: Watched(make(), seen))

    assert lengths(seen) == lengths([one for rounds in real for one in rounds if not one.prefill])
    stats = Stats(one for rounds in real for one in rounds)
    assert found.stats.acceptance_per_position == stats.acceptance_per_position
    assert found.stats.decoded == stats.decoded


def test_drafters_agree_now_and_then_so_that_equal_rounds_mean_something(made: tuple[forerun.Engine, Trace]) -> None:
    agreed = [position.agreed for answer in made[1].answers for position in answer.positions]

    assert 0 in agreed
    assert max(agreed) > 0


def test_an_end_of_sequence_ends_drafts_and_answers_as_in_the_real_run(tmp_path: Path) -> None:
    plain = traced(engine_with("draft_model"), tmp_path / "plain.jsonl", "draft_model")
    # a token from the middle of an answer that a draft had foreseen
    answer = next(answer for answer in plain.answers if any(one.agreed > 2 for one in answer.positions[6:]))
    place = next(place for place, one in enumerate(answer.positions) if place >= 6 and one.agreed > 2)
    engine = engine_with("draft_model", tiny_model("llama", eos_token_id=answer.tokens[place + 2]))
    trace = traced(engine, tmp_path / "ended.jsonl", "draft_model")
    assert min(len(one.tokens) for one in trace.answers) < NEW
    assert any(one.drafted and one.drafted[-1] in engine.eos for each in trace.answers for one in each.positions)
    for k in (1, 2, 3, 5):
        seen: list[Round] = []
        Replay(trace, constant(0.1)).policy(lambda k=k, seen=seen: Watched(Fixed(k), seen))
        real = real_rounds(engine.using(engine.drafter, "fixed", policy_options={"k": k}), trace)
        assert lengths(seen) == lengths([one for rounds in real for one in rounds if not one.prefill])


def test_counts_and_time_follow_from_agreement_and_costs() -> None:
    # positions after tokens 1 to 6 of an answer of 7; the drafts of the last two are cut by the room
    trace = by_hand([(2, [0.9] * 4), (0, [0.9] * 4), (1, [0.9] * 4), (1, [0.9] * 2), (0, [0.9]), (0, [])])
    found = Replay(trace, constant(0.25)).policy(lambda: Fixed(3))
    # 3 drafted, 2 accepted: 4 known; 2 drafted (that is all), 1 accepted: 6 known; nothing drafted: 7 known
    assert found.as_dict() == pytest.approx(
        {
            "speedup": 6 / (3 + 0.25 * 5),
            "tokens_per_round": 2,
            "drafted_per_round": 5 / 3,
            "acceptance": 3 / 5,
            "discard_rate": 2 / 6,
            "verification_rate": 3 / 6,
            "draft_forwards_per_token": 5 / 6,
            "held_back_rounds": 0,
            "clipped_rounds": 0,
            "tokens": 6,
            "rounds": 3,
        }
    )


def test_rounds_as_long_as_the_traces_drafts_are_counted_as_clipped() -> None:
    trace = by_hand([(0, [0.9] * 4), (0, [0.9] * 3), (0, [0.9] * 2), (0, [0.9]), (0, [])])

    assert Replay(trace, constant(0)).policy(lambda: Fixed(9)).as_dict()["clipped_rounds"] == 1 / 5


def test_a_policy_sees_signals_and_times_but_no_more_steps_than_it_pulled() -> None:
    shown: list[tuple[list[Step], Round]] = []

    class Curious(LengthPolicy):
        def should_stop(self, steps: Any) -> bool:
            return len(steps) == 2

        def observe(self, steps: Any, round: Round) -> None:
            shown.append((list(steps), round))

    Replay(by_hand([(2, [0.9, 0.8, 0.7]), (0, [0.6]), (0, [])], costs=None), constant(0.5)).policy(Curious)
    steps, round = shown[0]
    assert [step.signals.confidence for step in steps if step.signals] == [0.9, 0.8]
    assert [step.forward_seconds for step in steps] == pytest.approx([0.0005, 0.0005])
    assert round.timing.draft == round.timing.draft_forward == pytest.approx(0.001)
    assert round.timing.forward == pytest.approx(0.001)


class Resting(LengthPolicy):
    """Wants a draft in every other round."""

    def __init__(self) -> None:
        self._turn = 0

    def should_stop(self, steps: Any) -> bool:
        return self._turn % 2 == 0 or len(steps) >= 2

    def observe(self, steps: Any, round: Round) -> None:
        self._turn += 1


def test_rounds_that_a_policy_holds_back_are_told_as_the_loop_tells_them(made: tuple[forerun.Engine, Trace]) -> None:
    engine, trace = made
    seen: list[Round] = []
    found = Replay(trace, constant(0.1)).policy(lambda: Watched(Resting(), seen))
    real = real_rounds(engine.using(engine.drafter, Resting), trace)

    assert lengths(seen) == lengths([one for rounds in real for one in rounds if not one.prefill])
    assert 0.4 < found.as_dict()["held_back_rounds"] < 0.7


def test_the_governor_lets_a_good_drafter_draft_and_stops_a_bad_one() -> None:
    good = by_hand(*[[(min(4, 39 - known), [0.9] * min(4, 39 - known)) for known in range(1, 40)]] * 4)
    bad = by_hand(*[[(0, [0.9] * min(4, 39 - known)) for known in range(1, 40)]] * 4)
    make = partial(policy_factory, "governor", {"inner": "fixed", "k": 4})

    assert Replay(good, constant(0.1)).policy(make()).speedup > 2
    assert Replay(bad, constant(0.3)).policy(policy_factory("fixed", {"k": 4})).speedup < 0.5
    assert Replay(bad, constant(0.3)).policy(make()).speedup > 0.9


def test_each_answer_has_a_policy_of_its_own() -> None:
    made: list[LengthPolicy] = []

    def make() -> LengthPolicy:
        made.append(Fixed(1))
        return made[-1]

    Replay(by_hand([(0, [])], [(0, [])], [(0, [])]), constant(0.1)).policy(make)
    assert len(set(map(id, made))) == 3


def test_a_policy_that_was_trained_for_another_drafter_is_refused() -> None:
    class Trained(LengthPolicy):
        trained_for = Pair(PAIR.target, "another")

        def should_stop(self, steps: Any) -> bool:
            return True

    with pytest.raises(ValueError, match="another drafter"):
        Replay(by_hand([(0, [])]), constant(0.1)).policy(Trained)


def test_the_first_draft_of_an_answer_pays_for_reading_the_prompt() -> None:
    costs = RoundCosts("made up", constant(0.1).target, constant(0.1).draft, constant(2.0).draft)
    trace = by_hand([(1, [0.5] * 2), (0, [0.5]), (0, [])])
    found = Replay(trace, costs).policy(lambda: Fixed(1))
    idle = Replay(trace, costs).policy(lambda: Fixed(0))

    # two rounds, a draft in the first; c = 2 for each of the 5 tokens of the prompt
    assert found.seconds == pytest.approx(1e-3 * (2 + 0.1 + 5 * 2))
    assert idle.speedup == 1


def test_a_policy_is_told_what_the_drafter_has_to_read_and_where_a_request_ends() -> None:
    told: list[object] = []

    class Told(Fixed):
        def begin(self, unread: int, room: int, copies: bool = False) -> None:
            told.append((unread, room))

        def end(self) -> None:
            told.append("end")

    trace = by_hand([(1, [0.5] * 2), (0, [0.5]), (0, [])])
    reading = RoundCosts("made up", constant(0.1).target, constant(0.1).draft, constant(2.0).draft)
    for costs in (reading, constant(0.1)):
        Replay(trace, costs).policy(lambda: Told(1))
    assert told == [(5, trace.answers[0].room - 1), "end", (0, trace.answers[0].room - 1), "end"]


def test_lookups_steps_beside_a_drafter_with_laws_are_free(tmp_path: Path) -> None:
    engine = engine_with("hybrid")
    trace = traced(engine, tmp_path / "hybrid.jsonl", "hybrid")
    found = [
        round for number in range(4) for round in Replay(trace, constant(1)).rounds(number, lambda known, steps: 2)
    ]
    free = [one.timing.draft == 0 for one in found if len(one.draft)]

    assert True in free
    assert False in free


def test_a_trace_of_one_token_answers_has_nothing_to_replay() -> None:
    found = Replay(by_hand([]), constant(0.1)).policy(lambda: Fixed(3))

    assert (found.speedup, found.stats.rounds) == (1, 0)
    assert oracle(Replay(by_hand([]), constant(0.1))).speedup == 1
    with pytest.raises(ValueError, match="holds no measured costs"):
        calibrated(by_hand([]))


BRANCHING = [("tree", "draft_model"), ("tree", "self"), ("graph", "draft_model"), ("graph", "self")]


@pytest.fixture(scope="module", params=BRANCHING, ids=" of ".join)
def trees(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[forerun.Engine, Trace]:
    name, of = request.param
    engine = branching(name, of, **WIDE)
    return engine, traced(engine, tmp_path_factory.mktemp("traces") / "trace.jsonl", name)


@pytest.mark.parametrize(
    ("name", "options"),
    [("fixed", {"k": 1}), ("fixed", {"k": 3}), ("fixed", {"k": 6}), ("threshold", {"confidence": 0.4, "max_steps": 6})],
    ids=str,
)
def test_a_replayed_tree_has_the_rounds_of_the_real_run(
    trees: tuple[forerun.Engine, Trace], name: str, options: Mapping[str, Any]
) -> None:
    engine, trace = trees
    real = real_rounds(engine.using(engine.drafter, name, policy_options=options), trace)
    make, seen = policy_factory(name, options), []
    found = Replay(trace, constant(0.1), branches=True).policy(lambda: Watched(make(), seen))

    rounds = [one for rounds in real for one in rounds if not one.prefill]
    assert lengths(seen) == lengths(rounds)
    assert [(one.draft.tokens, one.draft.parents, one.verdict.path) for one in seen] == [
        (one.draft.tokens, one.draft.parents, one.verdict.path) for one in rounds
    ]
    stats = Stats(one for rounds in real for one in rounds)
    for count in ("rounds", "drafted", "accepted", "draft_forwards", "merged", "rows_saved", "rows_verified"):
        assert getattr(found.stats, count) == getattr(stats, count), count
    assert found.stats.acceptance_per_position == stats.acceptance_per_position


def test_a_replay_counts_the_forwards_that_the_drafter_made(trees: tuple[forerun.Engine, Trace]) -> None:
    engine, trace = trees
    made: list[int] = []

    class Counting(LengthPolicy):
        """Reads off, after each round, how many forwards the running drafter made for it."""

        def should_stop(self, steps: Any) -> bool:
            return len(steps) >= 5

        def observe(self, steps: Any, round: Round) -> None:
            drafter = running[-1]
            assert isinstance(drafter, Branched)
            made.append(len(drafter.forwards))
            drafter.forwards = []

    running: list[Drafter] = []

    def drafter(target: Any) -> Drafter:
        running.append(engine.drafter(target))
        return running[-1]

    real_rounds(engine.using(drafter, Counting), trace)
    found = Replay(trace, constant(0.1), branches=True).policy(lambda: Fixed(5))
    assert found.stats.draft_forwards == sum(made)


@pytest.mark.parametrize("of", ["draft_model", "self"])
def test_a_chain_is_the_same_as_a_chain_and_as_a_tree_without_branches(tmp_path: Path, of: str) -> None:
    target = model()
    alone = traced(chain_of(of, target), tmp_path / "chain.jsonl", of)
    both = traced(branching("tree", of, target, **AS_A_CHAIN), tmp_path / "tree.jsonl", "tree")
    for costs in (constant(0.1), constant(0.3, rows=0.05)):
        for name, options in POLICIES:
            make = policy_factory(name, options)
            first, *others = (
                Replay(trace, costs, branches).policy(make)
                for trace, branches in ((alone, False), (both, False), (both, True))
            )
            for other in others:
                assert other.as_dict() == pytest.approx(first.as_dict()), name
                assert other.stats.acceptance_per_position == first.stats.acceptance_per_position
        first, *others = (
            oracle(Replay(trace, costs, branches)) for trace, branches in ((alone, False), (both, False), (both, True))
        )
        assert [one.seconds for one in others] == pytest.approx([first.seconds] * 2)


def test_rows_that_cost_something_make_wide_trees_slower(trees: tuple[forerun.Engine, Trace]) -> None:
    trace = trees[1]
    free, dear = (Replay(trace, constant(0.1, rows), branches=True).policy(lambda: Fixed(3)) for rows in (0, 0.2))

    assert dear.stats.rounds == free.stats.rounds
    assert dear.speedup < free.speedup


def test_a_trace_of_chains_has_no_trees_to_replay() -> None:
    with pytest.raises(ValueError, match=r"hand\.jsonl holds chains alone; trace the drafter tree or graph"):
        Replay(by_hand([(0, [])]), constant(0.1), branches=True)
