"""An exit adapter on a native base: what its codes stand for, a row's bits the same in any company, refusals, fall-backs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.core.values import ROOT
from forerun.models.files.adapter import AdapterFile
from forerun.models.lean.adapter_runner import AdapterRunner
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.native.store import BlockStore
from forerun.models.lean.runner import LeanRunner
from forerun.models.lean.weights import quantise_int4
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_adapter, tiny_model

from ...running import chain, finish, off, text, together
from ..test_runner import in_small_weights
from .kernels import LEVELS, native, needs_kernels

pytestmark = needs_kernels
WIDTH = 32
CLOSE = 1e-3
KINDS = [("state", 1), ("state+token", 2)]
LAST = frozenset({2})


def tiny() -> Any:
    return tiny_model("llama", intermediate_size=64)


def adapter(inputs: str, depth: int) -> AdapterFile:
    return tiny_adapter(tiny(), 2, inputs, depth=depth)


@cache
def drafting(inputs: str = "state+token", depth: int = 2, level: str = "") -> AdapterRunner:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, level or LEVELS[-1])
        made = AdapterRunner(adapter(inputs, depth), native("llama", level), weights="int4")
    assert made.kernels.startswith("native")
    assert made.same_bits
    return made


def exact(inputs: str, depth: int) -> AdapterRunner:
    """In float32, what the codes of the base and of the adapter stand for."""
    file = adapter(inputs, depth)
    # a native base holds bfloat16 beside its codes, and an adapter's weights are taken in its type
    weights = {
        name: quantise_int4(value.bfloat16().float()).dense() if value.ndim == 2 else value
        for name, value in file.weights.items()
    }
    return AdapterRunner(replace(file, weights=weights), HFRunner(in_small_weights(tiny(), "int4")))


def states(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))


def read(sequence: Sequence, tokens: list[int], own: Tensor, parents: list[int] | None = None) -> Any:
    return finish(sequence.forward(tokens, parents, states=own, taps=LAST))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("inputs", "depth"), KINDS)
def test_it_computes_what_its_codes_stand_for(inputs: str, depth: int, level: str) -> None:
    tokens, own = text(40), states(40)
    ours = read(Sequence(drafting(inputs, depth, level)), tokens, own)
    theirs = read(Sequence(exact(inputs, depth)), tokens, own)
    assert off(ours.logits, theirs.logits) < CLOSE
    assert off(ours.hidden, theirs.hidden) < CLOSE
    assert off(ours.taps[2], theirs.taps[2]) < CLOSE


def alone(runner: AdapterRunner, prefix: int, tokens: list[int], own: Tensor) -> Tensor:
    """Logits and last states of rows that are computed one at a time."""
    sequence = Sequence(runner)
    finish(sequence.sync(text(prefix), states=states(prefix)))
    rows = [read(sequence, [token], own[i : i + 1]) for i, token in enumerate(tokens)]
    return torch.cat([torch.cat([row.logits, row.taps[2]], 1) for row in rows])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("inputs", "depth"), KINDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bits_in_any_company(inputs: str, depth: int, level: str, threads: int) -> None:
    runner, tokens, own = drafting(inputs, depth, level), text(7, 3), states(7, 3)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        wanted = alone(runner, 19, tokens, own)
        whole = read(Sequence(runner), [*text(19), *tokens], torch.cat([states(19), own]))
        assert torch.equal(torch.cat([whole.logits, whole.taps[2]], 1)[19:], wanted)
        tree, neighbour = Sequence(runner), Sequence(runner)
        together(tree.sync(text(19), states=states(19)), neighbour.sync(text(5, 1), states=states(5, 1)))
        parents = [ROOT, ROOT, 1, 1, 2, 4, 5]
        path = [1, 2, 4, 5, 6]
        rows, _ = together(
            tree.forward([9, *tokens[:2], 8, *tokens[2:5]], parents, states=own[[6, 0, 1, 5, 2, 3, 4]], taps=LAST),
            neighbour.forward(tokens, chain(7), states=own, taps=LAST),
        )
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.cat([rows.logits, rows.taps[2]], 1)[path], wanted[:5])


def test_it_goes_on_after_rows_were_kept_and_dropped() -> None:
    runner, tokens, own = drafting(), text(6, 3), states(6, 3)
    sequence, fresh = Sequence(runner), Sequence(runner)
    finish(sequence.sync(text(9), states=states(9)))
    read(sequence, [1, *tokens[:3]], torch.cat([states(1, 8), own[:3]]), [ROOT, ROOT, 1, 2])
    sequence.keep([1, 2, 3])
    rows = read(sequence, tokens[3:], own[3:])
    whole = read(fresh, [*text(9), *tokens], torch.cat([states(9), own]))
    assert torch.equal(rows.logits, whole.logits[12:])


def test_its_store_is_the_native_one_and_grows() -> None:
    runner = drafting()
    sequence = Sequence(runner, capacity=1)
    assert isinstance(runner.new_store(1), BlockStore)
    rows = finish(sequence.sync(text(200), states=states(200)))
    assert torch.equal(rows.logits[0], read(Sequence(runner), text(200), states(200)).logits[-1])


@pytest.mark.parametrize("level", LEVELS)
def test_a_restricted_head_of_the_base_drafts_its_tokens_only(level: str) -> None:
    base = native("llama", level)
    head = base.add_head([3, 9, 40])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, level)
        made = AdapterRunner(adapter("state", 1), base, head, "int4")
    rows = read(Sequence(made), [1, 2], states(2)).logits
    whole = read(Sequence(drafting("state", 1, level)), [1, 2], states(2)).logits
    assert rows[0].isfinite().nonzero().flatten().tolist() == [3, 9, 40]
    assert torch.equal(rows[:, [3, 9, 40]], whole[:, [3, 9, 40]])


def test_the_scale_of_the_bases_logits_is_its_own() -> None:
    model = tiny_model("granite", intermediate_size=64, logits_scaling=4.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, LEVELS[-1])
        base = LeanRunner.from_model(model, "int4")
        made = AdapterRunner(adapter("state", 1), base, weights="int4")
    rows = read(Sequence(made), [1, 2], states(2))
    assert off(base.head(rows.hidden), rows.logits) < 1e-6


@pytest.mark.parametrize("off_grid", [(2, WIDTH + 1), (1, WIDTH), (3, WIDTH), (2, 0)])
def test_states_that_do_not_fit_are_refused(off_grid: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"states must be \[2, 32\] for 2 tokens, got"):
        finish(Sequence(drafting()).forward([1, 2], states=torch.zeros(off_grid)))


def test_no_states_are_refused() -> None:
    with pytest.raises(ValueError, match="an exit adapter reads states beside tokens"):
        finish(Sequence(drafting()).forward([1, 2]))


def test_the_native_step_refuses_rows_without_states() -> None:
    runner = drafting()
    sequence = Sequence(runner)
    request = sequence.forward([1, 2], states=states(2)).send(None)
    request.part.entry = states(1)
    assert runner._step is not None
    with pytest.raises(ValueError, match="rows, slots or paths don't fit each other"):
        runner._step.execute([request], {})


def test_states_of_any_type_and_order_in_memory_are_read() -> None:
    runner, own = drafting(), states(3).bfloat16()
    expected = read(Sequence(runner), text(3), own.float()).logits
    assert torch.equal(read(Sequence(runner), text(3), own).logits, expected)
    assert torch.equal(read(Sequence(runner), text(3), own.float().T.contiguous().T).logits, expected)


@pytest.mark.parametrize("weights", ["", "float32", "bf16", "int8"])
@pytest.mark.parametrize(("inputs", "depth"), KINDS)
def test_every_form_of_weights_is_native_and_near_the_others(inputs: str, depth: int, weights: str) -> None:
    file = adapter(inputs, depth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, LEVELS[-1])
        made = AdapterRunner(file, native("llama"), weights=weights)
        base = LeanRunner.from_model(in_small_weights(tiny(), "int4"))
    assert made.kernels.startswith("native")
    float_base = AdapterRunner(file, base)
    assert float_base.kernels.startswith("native")
    tokens, own = text(9), states(9)
    rows = read(Sequence(made), tokens, own)
    assert off(rows.logits, read(Sequence(float_base), tokens, own).logits) < 0.3
    wanted = alone(made, 5, tokens[5:], own[5:])
    after = Sequence(made)
    finish(after.sync(text(5), states=states(5)))
    rows = read(after, tokens[5:], own[5:])
    assert torch.equal(torch.cat([rows.logits, rows.taps[2]], 1), wanted)


def test_where_its_base_or_its_widths_do_not_fit_it_runs_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    on_modules = AdapterRunner(adapter("state", 1), HFRunner(tiny()), weights="int4")
    assert on_modules.kernels == "torch"
    assert on_modules.kernels_reason == "its base runs on torch's operations"
    narrow = tiny_adapter(tiny_model("llama", intermediate_size=48), 2, "state")
    held = AdapterRunner(narrow, native("llama"), weights="int8")
    assert "are not multiples of 32" in held.kernels_reason
    monkeypatch.setenv(SWITCH, "off")
    switched_off = AdapterRunner(adapter("state", 1), native("llama"), weights="int4")
    assert switched_off.kernels_reason == "FORERUN_NATIVE=off says so"
    assert not switched_off.same_bits
    near = read(Sequence(drafting("state", 1)), text(5), states(5)).logits
    assert off(read(Sequence(switched_off), text(5), states(5)).logits, near) < 0.05
