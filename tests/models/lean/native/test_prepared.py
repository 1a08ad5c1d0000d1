"""A call that is made once gives what a fresh one gives, whatever ran in between."""

from __future__ import annotations

import torch

from forerun.models.lean.native.prepared import Turns, addresses
from forerun.models.lean.native.step import MOST_CALLS
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.sequence import Sequence

from ...running import chain, finish, text, together
from .kernels import native, needs_kernels

pytestmark = needs_kernels
EXIT = LayerPlan.early_exit(2, 4)
SKIP = LayerPlan.skip(4, attention=(1, 2), mlp=(2,))


def logits(plan: LayerPlan = FULL, taps: frozenset[int] = frozenset(), rows: int = 3) -> torch.Tensor:
    sequence = Sequence(native("llama"))
    finish(sequence.sync(text(9)))
    return finish(sequence.forward(text(rows, 1), plan=plan, taps=taps)).logits.clone()


def test_plans_taps_and_row_counts_may_follow_each_other_in_any_order() -> None:
    cases = [
        (plan, taps, rows) for plan in (FULL, EXIT, SKIP) for taps in (frozenset(), frozenset({1})) for rows in (1, 5)
    ]
    first = [logits(*case) for case in cases]
    again = [logits(*case) for case in reversed(cases)]
    assert all(torch.equal(a, b) for a, b in zip(first, reversed(again), strict=True))


def test_equal_plans_share_a_call_and_more_than_are_kept_still_run() -> None:
    step = native("llama")._step
    assert step is not None
    logits(EXIT)
    before = len(step._calls)
    logits(LayerPlan.early_exit(2, 4))
    assert len(step._calls) == before
    for number in range(MOST_CALLS + 2):
        taps = frozenset(layer for layer in range(7) if number >> layer & 1)
        logits(SKIP, taps)
    assert len(step._calls) <= MOST_CALLS
    assert torch.equal(logits(EXIT), logits(LayerPlan.early_exit(2, 4)))


def test_rows_that_are_held_stay_as_they_are() -> None:
    sequence = Sequence(native("llama"))
    rows = [finish(sequence.sync(text(4)))]
    kept = rows[0].logits.clone(), rows[0].hidden.clone()
    for _ in range(3):
        rows.append(finish(sequence.forward([5])))
    assert torch.equal(rows[0].logits, kept[0])
    assert torch.equal(rows[0].hidden, kept[1])


def test_a_text_may_outgrow_the_tables_of_positions() -> None:
    tables = [torch.zeros(4, 3, 2, dtype=torch.complex64), torch.zeros(6, 3, 2, dtype=torch.complex64)]
    turns = Turns(tables)
    assert turns.length == 4
    assert list(turns.addresses) == list(addresses(tables)) == [table.data_ptr() for table in tables]


def test_native_time_is_told_with_the_rows() -> None:
    one, other = Sequence(native("llama")), Sequence(native("llama"))
    rows = together(one.complete(text(3), chain(3)), other.complete(text(2), chain(2)))
    assert all(found.native > 0 for found in rows)
