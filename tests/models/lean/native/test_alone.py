"""A chain that is alone in its forward: kept views give what new ones give, and nothing of an earlier call is left."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from forerun.core.values import ROOT
from forerun.models.lean.native.alone import MOST, all_laws, goes_alone
from forerun.models.packed.forward import Part
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.request import Chain, Request
from forerun.models.packed.sequence import Sequence

from ...running import chain, finish, text, together
from .kernels import LEVELS, native, needs_kernels

pytestmark = needs_kernels


def request(count: int = 3, want: int | None = None, **options: Any) -> Request:
    runner = native("llama")
    part = {name: options.pop(name) for name in ("ancestors", "entry", "first") if name in options}
    own = Part(runner.new_store(64), 0, part.pop("first", 0), count, list(range(count)), **part)
    return Request(runner, (1,) * count, own, count if want is None else want, **options)


def test_a_chain_whose_rows_are_all_wanted_goes_alone() -> None:
    assert goes_alone(request())
    assert goes_alone(request(MOST))
    assert goes_alone(request(plan=LayerPlan.early_exit(2, 4)))


@pytest.mark.parametrize(
    "options",
    [
        {"count": MOST + 1},
        {"want": 1},
        {"first": 1},
        {"taps": frozenset({1})},
        {"chain": Chain(2, 8), "want": 1},
        {"ancestors": torch.ones(3, 3, dtype=torch.bool)},
        {"entry": torch.zeros(1, 32)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_asks_for_more_does_not(options: dict[str, Any]) -> None:
    assert not goes_alone(request(**options))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [1, 2, 9, MOST])
def test_it_gives_the_bits_that_it_gives_in_company(level: str, count: int) -> None:
    runner = native("qwen2", level)
    alone, one, other = (Sequence(runner) for _ in range(3))
    for sequence in (alone, one, other):
        finish(sequence.sync(text(12)))
    rows = finish(alone.complete(text(count, 1), chain(count)))
    beside, _ = together(one.complete(text(count, 1), chain(count)), other.complete(text(2, 2), chain(2)))
    assert torch.equal(rows.logits, beside.logits)
    assert torch.equal(rows.hidden, beside.hidden)
    assert list(rows.best) == rows.logits.argmax(-1).tolist()


def test_rows_stay_as_they_were_while_further_forwards_run() -> None:
    sequence = Sequence(native("llama"))
    finish(sequence.sync(text(5)))
    rows = finish(sequence.complete(text(3), chain(3)))
    best = list(rows.best)
    for seed in range(20):
        finish(sequence.complete(text(3, seed + 5), chain(3)))
    assert rows.logits.argmax(-1).tolist() == best == list(rows.best)
    assert rows.chooser is not None
    assert rows.chooser.best(rows.logits) == (rows.logits.amax(-1).tolist(), best)


def test_a_store_that_grew_is_read_where_it_lies_now() -> None:
    runner = native("llama")
    small, large = Sequence(runner, capacity=64), Sequence(runner, capacity=1024)
    ids = text(150)
    for sequence in (small, large):
        finish(sequence.sync(ids[:60]))
    for token in ids[60:]:
        rows = [finish(sequence.complete([token], [ROOT])) for sequence in (small, large)]
        assert torch.equal(rows[0].logits, rows[1].logits)
        for sequence in (small, large):
            sequence.keep([0])


def test_a_row_that_is_no_law_has_no_best_token() -> None:
    nan, inf = float("nan"), float("inf")
    assert all_laws([1.0, -3e38, inf])
    for values in ([nan], [1.0, nan], [-inf, 1.0], [inf, -inf], [3e38, nan, inf]):
        assert not all_laws(values)
