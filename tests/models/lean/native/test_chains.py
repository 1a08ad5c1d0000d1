"""Chains of greedy steps in one native call: the bits of the same steps one by one, in rows, states, keys and values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.native.store import BlockStore
from forerun.models.lean.native.views import CallView, ChainView
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.request import Chain
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import VOCABULARY, tiny_model

from ...running import chain, finish, text, together
from .kernels import FAMILIES, LEVELS, native, needs_kernels

pytestmark = needs_kernels
EXIT = LayerPlan.early_exit(2, 4)
SKIP = LayerPlan.skip(4, attention=(1, 2), mlp=(2,))
ROWS = 6
TAPS = frozenset({1, 4})


def _set(name: str, value: int | None, chain: ChainView, call: CallView) -> None:
    setattr(chain, name, value)


def _fill(chain: ChainView, rows: int) -> None:
    ctypes.c_int32.from_address(chain.most).value = rows


def plans(runner: LeanRunner) -> dict[str, LayerPlan]:
    head = runner.add_head([3, 5, 9, 40, 41, 80])
    runner.add_weights("int8")
    return {
        "full": FULL,
        "exit": EXIT,
        "skip": SKIP,
        "head": LayerPlan(head=head),
        "weights": LayerPlan(weights="int8"),
        "coarse": LayerPlan(activations=8),
        "all": LayerPlan(EXIT.attention, EXIT.mlp, 2, "int8", head, 8),
    }


def begun(runner: Any, length: int = 19, plan: LayerPlan = FULL) -> Sequence:
    sequence = Sequence(runner, plan=plan)
    finish(sequence.sync(text(length)))
    return sequence


def stepped(sequence: Sequence, token: int, rows: int, plan: LayerPlan = FULL, among: int = VOCABULARY) -> list[Any]:
    """The rows of as many forwards, each of which reads the best token of the row before it."""
    found = [finish(sequence.forward([token], plan=plan, taps=TAPS))]
    while len(found) < rows:
        token = int(found[-1].logits[0, :among].argmax())
        found.append(finish(sequence.forward([token], plan=plan, taps=TAPS)))
    return found


def held(sequence: Sequence) -> tuple[Tensor, Tensor]:
    """All keys and values."""
    store = sequence._store
    assert isinstance(store, BlockStore)
    assert store._keys is not None
    assert store._values is not None
    return store._keys.clone(), store._values.clone()


def check(rows: Any, singles: list[Any], among: int = VOCABULARY) -> None:
    assert torch.equal(rows.logits, torch.cat([one.logits for one in singles]))
    assert torch.equal(rows.hidden, torch.cat([one.hidden for one in singles]))
    assert rows.tokens == [int(one.logits[0, :among].argmax()) for one in singles]
    for token, share, one in zip(rows.tokens, rows.shares, singles, strict=True):
        assert share == pytest.approx(float(one.logits[0, :among].double().softmax(-1)[token]), rel=1e-5)


@pytest.mark.parametrize("kind", ["full", "exit", "skip", "head", "weights", "coarse", "all"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "olmo3"])
def test_every_plan_gives_the_bits_of_single_steps(family: str, kind: str) -> None:
    runner = native(family)
    plan = plans(runner)[kind]
    one, other = begun(runner), begun(runner)
    singles = stepped(one, 7, ROWS, plan)
    rows = finish(other.forward([7], plan=plan, taps=TAPS, chain=Chain(ROWS, VOCABULARY)))
    check(rows, singles)
    for layer in TAPS:
        assert torch.equal(rows.taps[layer], torch.cat([single.taps[layer] for single in singles]))
    assert one.scratch == other.scratch == (7, *rows.tokens[:-1])
    assert all(map(torch.equal, held(one), held(other)))


@pytest.mark.parametrize("weights", ["int4", "int8", ""])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_in_every_form(family: str, weights: str) -> None:
    runner = native(family, weights=weights)
    one, other = begun(runner, 9), begun(runner, 9)
    check(finish(other.forward([7], chain=Chain(4, VOCABULARY))), stepped(one, 7, 4))
    assert all(map(torch.equal, held(one), held(other)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_instruction_set_with_any_number_of_threads(level: str, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        runner = native("qwen3", level)
        check(finish(begun(runner).forward([7], chain=Chain(ROWS, VOCABULARY))), stepped(begun(runner), 7, ROWS))
    finally:
        torch.set_num_threads(before)


def test_sequences_that_ask_for_different_lengths_share_a_call() -> None:
    runner, lengths, wanted = native("llama"), (3, 30, 70, 12), (1, 5, 2, 7)
    alone = [stepped(begun(runner, length), 8, rows) for length, rows in zip(lengths, wanted, strict=True)]
    sequences = [begun(runner, length) for length in lengths]
    found = together(
        *(
            sequence.forward([8], taps=TAPS, chain=Chain(rows, VOCABULARY))
            for sequence, rows in zip(sequences, wanted, strict=True)
        )
    )
    for rows, singles, sequence in zip(found, alone, sequences, strict=True):
        check(rows, singles)
        assert torch.equal(rows.taps[4], torch.cat([single.taps[4] for single in singles]))
        assert len(sequence.scratch) == len(singles)


def test_a_chain_goes_on_where_another_one_ended() -> None:
    runner = native("mistral")
    singles = stepped(begun(runner), 7, 7)
    sequence = begun(runner)
    first = finish(sequence.forward([7], chain=Chain(3, VOCABULARY)))
    second = finish(sequence.forward([first.tokens[-1]], chain=Chain(4, VOCABULARY)))
    assert torch.equal(torch.cat([first.logits, second.logits]), torch.cat([one.logits for one in singles]))


def test_a_text_is_synced_and_gone_on_with_in_one_call() -> None:
    runner, ids = native("llama"), text(40)
    one, other = begun(runner, 30), begun(runner, 30)
    finish(one.sync(ids[:-1]))
    singles = stepped(one, ids[-1], ROWS)
    rows = finish(other.sync(ids, chain=Chain(ROWS, VOCABULARY)))
    check(rows, singles)
    assert other.ids == ids
    assert other.scratch == tuple(rows.tokens[:-1])
    assert all(map(torch.equal, held(one), held(other)))
    other.keep([0, 1])
    assert other.ids == [*ids, *rows.tokens[:2]]
    assert torch.equal(finish(other.sync([*ids, *rows.tokens[:3]])).logits[0], rows.logits[3])


def test_the_states_of_a_chain_are_known_of_what_is_kept() -> None:
    runner, ids = native("llama"), text(12)
    sequence = Sequence(runner)
    rows = finish(sequence.sync(ids, taps=TAPS, chain=Chain(4, VOCABULARY)))
    sequence.keep([0, 1, 2])
    whole = Sequence(runner)
    finish(whole.sync([*ids, *rows.tokens[:3]], taps=TAPS))
    for layer in TAPS:
        assert torch.equal(sequence.states(layer), whole.states(layer))


def test_rows_of_an_exit_chain_resume_as_single_ones_do() -> None:
    runner = native("llama")
    one, other = begun(runner), begun(runner)
    stepped(one, 7, 4, EXIT)
    drafted = finish(other.forward([7], plan=EXIT, chain=Chain(4, VOCABULARY))).tokens
    asked = [7, *drafted], chain(5)
    assert other._resumable(*asked)[0] == 2
    assert len(other._resumable(*asked)[1]) == 4
    assert torch.equal(finish(one.complete(*asked)).logits, finish(other.complete(*asked)).logits)


def test_a_token_is_the_best_among_those_that_are_asked_for() -> None:
    runner, among = native("llama"), 11
    rows = finish(begun(runner).forward([7], chain=Chain(ROWS, among)))
    check(rows, stepped(begun(runner), 7, ROWS, among=among), among)
    assert max(rows.tokens) < among


def test_a_chain_ends_with_its_context() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, LEVELS[-1])
        runner = LeanRunner.from_model(tiny_model("llama", max_position_embeddings=22, intermediate_size=64), "int4")
    rows = finish(begun(runner).forward([7], chain=Chain(9, VOCABULARY)))
    assert len(rows.tokens) == 3
    check(rows, stepped(begun(runner), 7, 3))


def test_it_ends_after_a_row_that_is_no_law() -> None:
    model = tiny_model("llama")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, LEVELS[-1])
        sound = LeanRunner.from_model(model, "")
        tokens = finish(begun(sound).forward([7], chain=Chain(4, VOCABULARY))).tokens
        broken = tiny_model("llama")
        broken.model.embed_tokens.weight.data[tokens[1]] = torch.nan
        runner = LeanRunner.from_model(broken, "")
    assert not {tokens[1]} & {7, *text(19), *text(9), tokens[0]}
    sequence, neighbour = begun(runner), begun(runner, 9)
    wanted = stepped(begun(runner, 9), 7, 5)
    rows, other = together(
        sequence.forward([7], taps=TAPS, chain=Chain(6, VOCABULARY)),
        neighbour.forward([7], taps=TAPS, chain=Chain(5, VOCABULARY)),
    )
    assert rows.tokens == [*tokens[:2], -1]
    assert len(rows.logits) == len(rows.hidden) == len(rows.taps[4]) == 3
    assert rows.logits[2].isnan().all()
    assert sequence.scratch == (7, *tokens[:2])
    if not torch.cat([one.logits for one in wanted]).isnan().any():
        check(other, wanted)


def test_a_runner_without_chains_gives_the_first_row_alone() -> None:
    rows = finish(begun(HFRunner(tiny_model("llama"))).forward([7], chain=Chain(4, VOCABULARY)))
    assert len(rows.logits) == 1
    assert (rows.tokens, rows.shares) == ((), ())


def test_a_tree_does_not_go_on_as_a_chain() -> None:
    sequence = begun(native("llama"))
    finish(sequence.forward([7, 8], [-1, -1]))
    rows = finish(sequence.forward([9], [0], chain=Chain(4, VOCABULARY)))
    assert rows.tokens == ()
    assert sequence.scratch == (7, 8, 9)


BAD: dict[str, Callable[[ChainView, CallView], None]] = {
    **{f"no {name}": partial(_set, name, None) for name in ("most", "made", "tokens", "shares")},
    **{f"width {value}": partial(_set, "width", value) for value in (0, -1, VOCABULARY + 1)},
    "more rows than a sequence has room for": lambda chain, call: _fill(chain, 9999),
    "no rows": lambda chain, call: _fill(chain, 0),
    "no wanted row": lambda chain, call: setattr(call, "num_wanted", 0),
    "rows that resume": lambda chain, call: setattr(call.parts[0], "resumed", 1),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = native("llama")
    step = runner._step
    assert step is not None
    real, sequence = step.library.functions, begun(runner)

    class Changing:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def forerun_chain(self, call: Any, chains: Any, space: Any) -> int:
            own = CallView.from_buffer_copy(call)
            BAD[name](chains, own)
            status: int = real.forerun_chain(own, chains, space)
            return status

    monkeypatch.setattr(step, "library", type(step.library)("changed", Changing()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="don't fit each other"):
        finish(sequence.forward([7], chain=Chain(3, VOCABULARY)))
