"""Idle sequences: who gets which, and how many are kept."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ..running import finish, off, own_logits, text


@pytest.fixture(scope="module")
def runner() -> HFRunner:
    return HFRunner(tiny_model("llama"))


def idle(pool: SequencePool, *ids: int) -> Sequence:
    sequence = Sequence(pool.runner)
    sequence.ids = list(ids)
    pool.release(sequence)
    return sequence


def test_an_empty_pool_makes_a_new_sequence(runner: HFRunner) -> None:
    sequence = SequencePool(runner).acquire([1, 2])
    assert (sequence.ids, sequence.runner) == ([], runner)


def test_the_longest_shared_beginning_wins(runner: HFRunner) -> None:
    pool = SequencePool(runner)
    idle(pool, 1, 2, 9, 9)
    best = idle(pool, 1, 2, 3)
    idle(pool, 5, 1, 2, 3, 4)
    assert pool.acquire([1, 2, 3, 4]) is best


def test_a_sequence_that_shares_nothing_is_left_for_others(runner: HFRunner) -> None:
    pool = SequencePool(runner)
    other = idle(pool, 7)
    assert pool.acquire([1]) is not other
    assert pool.acquire([7, 8]) is other


def test_a_taken_sequence_is_nobody_elses(runner: HFRunner) -> None:
    pool = SequencePool(runner)
    idle(pool, 1, 2)
    first, second = pool.acquire([1, 2]), pool.acquire([1, 2])
    assert first is not second


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_only_the_latest_are_kept(runner: HFRunner, keep: int) -> None:
    pool = SequencePool(runner, keep=keep)
    given = [idle(pool, i, i) for i in range(6)]
    found = [pool.acquire([i, i]) is sequence for i, sequence in enumerate(given)]
    assert found == [i >= 6 - keep for i in range(6)]


def test_a_given_sequence_forgets_its_scratch_rows(runner: HFRunner) -> None:
    pool = SequencePool(runner)
    sequence = pool.acquire()
    finish(sequence.sync(text(5)))
    finish(sequence.forward([1, 2]))
    pool.release(sequence)
    assert sequence.scratch == ()
    assert sequence.ids == text(5)


def test_a_second_turn_reuses_the_first_ones_prefix_and_says_the_same(runner: HFRunner) -> None:
    model = tiny_model("llama")
    pool = SequencePool(runner)
    first = pool.acquire(text(20))
    finish(first.sync(text(20)))
    pool.release(first)
    second = [*text(20), *text(6, seed=1)]
    sequence = pool.acquire(second)
    request = sequence.sync(second).send(None)
    assert request.tokens == tuple(second[20:])
    assert off(finish(sequence.sync(second)).logits, own_logits(model, second)[-1:]) < 1e-4


def test_a_new_sequence_has_the_pools_plan(runner: HFRunner) -> None:
    plan = LayerPlan(weights="int4")
    assert SequencePool(runner, plan=plan).acquire([1]).plan == plan
    assert SequencePool(runner).acquire([1]).plan == FULL


def test_a_sequence_that_was_in_use_when_the_pool_was_cleared_is_not_kept(runner: HFRunner) -> None:
    pool = SequencePool(runner)
    sequence = pool.acquire([1, 2])
    sequence.ids = [1, 2]
    pool.clear()
    pool.release(sequence)
    assert pool.empty
    assert pool.acquire([1, 2]) is not sequence


def test_sequences_of_old_weights_are_not_kept() -> None:
    runner = HFRunner(tiny_model("llama"))
    pool = SequencePool(runner)
    kept, used = idle(pool, 1, 2), pool.acquire([5, 6])
    used.ids = [5, 6]
    runner.renew()
    assert pool.acquire([1, 2]) is not kept
    pool.release(used)
    assert pool.empty


def test_threads_never_share_a_sequence(runner: HFRunner) -> None:
    pool, used, clashes = SequencePool(runner), set[int](), []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(_: int) -> None:
        for _ in range(200):
            sequence = pool.acquire([1, 2, 3])
            if id(sequence) in used:
                clashes.append(sequence)
            used.add(id(sequence))
            sequence.ids = [1, 2, 3]
            used.discard(id(sequence))
            pool.release(sequence)

    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert not clashes
