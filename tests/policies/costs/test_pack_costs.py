"""What rows cost where forwards are shared."""

from __future__ import annotations

import pytest

from forerun.core.values import ROOT, Draft, Pack, Round, Timing, Verdict
from forerun.policies.cost import worth
from forerun.policies.costs.pack_costs import PackCosts, draft_seconds
from forerun.policies.costs.step_costs import MeasuredStepCosts

FORWARD, ROW = 0.010, 0.001


def pack_of(requests: int, rows: int, reading: bool = False) -> Pack:
    return Pack(requests, rows, FORWARD + ROW * rows, reading)


def in_pack(pack: Pack | None, drafted: int, draft: float = 0.0, **timing: float) -> Round:
    own = Draft((1,) * drafted, tuple(range(ROOT, drafted - 1)), (None,) * drafted)
    seconds = 1.0 if pack is None else pack.seconds
    return Round((1,), own, Verdict((), (1,)), 5, timing=Timing(draft=draft, forward=seconds, pack=pack, **timing))


def learnt(requests: int) -> PackCosts:
    """Costs of a batch in which each request drafts 0 to 4 tokens in turn."""
    costs = PackCosts()
    for number in range(200):
        drafted = number % 5
        costs.learn(in_pack(pack_of(requests, requests + drafted * requests), drafted))
    costs.learn(in_pack(pack_of(requests, requests), 0))
    return costs


@pytest.mark.parametrize("requests", [2, 16])
def test_a_row_costs_everyone_and_a_forward_is_divided(requests: int) -> None:
    costs = learnt(requests)

    assert costs.verify(1) == pytest.approx((FORWARD + ROW * requests) / requests, rel=0.05)
    assert costs.verify(4) - costs.verify(1) == pytest.approx(3 * ROW, rel=0.15)


def test_the_parts_of_all_are_the_forward_however_much_each_drafts() -> None:
    costs = learnt(16)
    costs.learn(in_pack(pack_of(16, 48), 2))

    assert 16 * costs.verify(3) == pytest.approx(FORWARD + 48 * ROW, rel=0.05)


def test_drafts_of_others_leave_the_own_plain_round_as_dear_as_it_is_among_plain_ones() -> None:
    costs = learnt(16)
    among_plain_ones = costs.verify(1)
    costs.learn(in_pack(pack_of(16, 16 + 15 * 4), 0))

    assert costs.verify(1) == pytest.approx(among_plain_ones, rel=0.02)


def test_drafts_that_pay_alone_may_not_pay_in_company() -> None:
    def pays(requests: int) -> bool:
        costs = learnt(requests)
        # the rate of plain decoding, a token of which 3 in 10 are accepted
        return worth(1.0, [0.3], 1 / costs.verify(1), 0.0, costs.verify, 0) > 0

    assert pays(2)
    assert not pays(16)


def test_requests_of_one_forward_learn_from_it_once() -> None:
    costs = PackCosts()
    pack = pack_of(3, 5)
    for drafted in (2, 0, 0):
        assert costs.learn(in_pack(pack, drafted))

    assert costs.known == 1


def test_what_runs_between_forwards_counts_for_all() -> None:
    def verify(**timing: float) -> float:
        costs = PackCosts()
        costs.learn(in_pack(pack_of(4, 4), 0, **timing))
        return costs.verify(1)

    assert verify(decide=0.002, keep=0.001) == pytest.approx(verify() + 0.003)


def test_a_forward_that_also_reads_a_prompt_tells_nothing() -> None:
    costs = PackCosts()

    assert not costs.learn(in_pack(pack_of(3, 40, reading=True), 1))
    assert costs.shared
    assert costs.known == 0


def test_a_round_alone_is_not_shared() -> None:
    costs = learnt(4)

    assert costs.learn(in_pack(None, 2))
    assert not costs.shared


def test_a_draft_in_company_costs_its_part_of_the_draft_s_forwards() -> None:
    shared = in_pack(pack_of(4, 8), 2, draft=0.5, draft_forward=0.1)

    assert draft_seconds(shared) == 0.1
    assert draft_seconds(in_pack(None, 2, draft=0.5, draft_forward=0.1)) == 0.5
    assert draft_seconds(in_pack(pack_of(4, 8), 2, draft=0.5)) == 0.5  # a drafter without forwards waits for nobody


def test_measured_costs_are_those_of_the_newest_company() -> None:
    costs = MeasuredStepCosts()
    for drafted in (0, 1, 2, 3) * 20:
        costs.learn(False, drafted, in_pack(None, drafted))
    alone = costs.verify(2)
    for drafted in (0, 1, 2, 3) * 20:
        costs.learn(False, drafted, in_pack(pack_of(8, 8 + 8 * drafted), drafted))

    assert costs.verify(1) == pytest.approx((FORWARD + 8 * ROW) / 8, rel=0.01)
    assert costs.verify(3) - costs.verify(1) == pytest.approx(2 * ROW, rel=0.15)
    costs.learn(False, 0, in_pack(None, 0))
    assert costs.verify(2) == pytest.approx(alone, rel=0.1)
