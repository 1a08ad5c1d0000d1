"""The native step: near float arithmetic on the same codes, and a row's bits the same in any company."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from forerun.core.values import ROOT
from forerun.errors import UnsupportedModel
from forerun.models.lean.native.applies import SMALL
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ...running import chain, finish, own_logits, text, together
from ..test_runner import in_small_weights, off, written
from .kernels import FAMILIES, LEVELS, native, needs_kernels

pytestmark = needs_kernels
CLOSE = 5e-4
EXIT = LayerPlan.early_exit(2, 4)
SKIP = LayerPlan.skip(4, attention=(1, 2), mlp=(2,))


def exact_model(family: str, weights: str = "int4") -> Any:
    """In float32, what the codes of the native model stand for."""
    return in_small_weights(tiny_model(family, intermediate_size=64), weights)


@pytest.mark.parametrize("weights", SMALL)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_computes_every_family(family: str, weights: str) -> None:
    ids = text(40)
    rows = finish(Sequence(native(family, weights=weights)).complete(ids, chain(40)))
    assert off(rows.logits, own_logits(exact_model(family, weights), ids)) < CLOSE


@pytest.mark.parametrize("level", LEVELS)
def test_it_computes_on_every_instruction_set(level: str) -> None:
    ids = text(20)
    rows = finish(Sequence(native("qwen3", level)).complete(ids, chain(20)))
    assert off(rows.logits, own_logits(exact_model("qwen3"), ids)) < CLOSE


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text"])
def test_every_instruction_set_gives_the_same_bits(family: str) -> None:
    ids, parents = text(24), [*chain(20), 3, 20, 20, 22]
    wanted = finish(Sequence(native(family, LEVELS[0])).complete(ids, parents)).logits
    for level in LEVELS[1:]:
        assert torch.equal(finish(Sequence(native(family, level)).complete(ids, parents)).logits, wanted), level


@pytest.mark.parametrize("plan", [FULL, EXIT, SKIP], ids=["full", "exit", "skip"])
@pytest.mark.parametrize("family", ["llama", "olmo3", "gemma3_text"])
def test_plans_and_taps_equal_transformers_modules(family: str, plan: LayerPlan) -> None:
    def drafted(runner: Any) -> Any:
        sequence = Sequence(runner)
        finish(sequence.sync(text(19)))
        return finish(sequence.forward(text(3, 1), plan=plan, taps=frozenset({0, 1, 2})))

    ours, theirs = drafted(native(family)), drafted(HFRunner(exact_model(family)))
    assert off(ours.logits, theirs.logits) < CLOSE
    assert off(ours.hidden, theirs.hidden) < CLOSE
    assert ours.taps.keys() == theirs.taps.keys()
    assert all(off(ours.taps[layer], states) < CLOSE for layer, states in theirs.taps.items())


def test_taps_after_an_exit_are_what_the_last_layer_gave() -> None:
    sequence = Sequence(native("llama"))
    finish(sequence.sync(text(9)))
    rows = finish(sequence.forward(text(3, 1), plan=EXIT, taps=frozenset({0, 2, 4})))
    assert torch.equal(rows.taps[4], rows.taps[2])
    assert not torch.equal(rows.taps[2], rows.taps[0])


def alone(runner: LeanRunner, prefix: list[int], tokens: list[int]) -> list[torch.Tensor]:
    """The rows of plain decoding."""
    sequence = Sequence(runner)
    finish(sequence.sync(prefix))
    rows = []
    for token in tokens:
        rows.append(finish(sequence.complete([token], [ROOT])).logits[0].clone())
        sequence.keep([0])
    return rows


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("length", "weights"), [(1, "int4"), (19, "int4"), (70, "int4"), (19, "int8")])
def test_a_row_has_the_same_bits_alone_in_chains_and_in_prefill(family: str, length: int, weights: str) -> None:
    runner, prefix, tokens = native(family, weights=weights), text(length), text(16, 3)
    wanted = alone(runner, prefix, tokens)
    whole = finish(Sequence(runner).complete([*prefix, *tokens], chain(length + 16))).logits[length:]
    assert all(torch.equal(row, own) for row, own in zip(whole, wanted, strict=True))
    for n in (2, 3, 4, 5, 7, 8, 12, 16):
        sequence = Sequence(runner)
        finish(sequence.sync(prefix))
        rows = finish(sequence.complete(tokens[:n], chain(n))).logits
        assert all(torch.equal(row, own) for row, own in zip(rows, wanted, strict=False))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_path_of_any_tree_in_any_batch_has_the_bits_of_plain_decoding(level: str, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(6):
            _check_a_random_tree(random.Random(seed), level)
    finally:
        torch.set_num_threads(before)


def _check_a_random_tree(rng: random.Random, level: str) -> None:
    runner = native(rng.choice(["llama", "gemma3_text", "mistral"]), level, rng.choice(SMALL))
    prefix, depth = text(rng.randint(1, 90), rng.randint(0, 99)), rng.randint(1, 6)
    path = text(depth, rng.randint(0, 99))
    tokens: list[int] = []
    parents: list[int] = []
    nodes: list[int] = []
    for token in path:
        for _ in range(rng.randint(0, 2)):
            parents.append(rng.randint(ROOT, len(tokens) - 1))
            tokens.append(rng.randrange(97))
        parents.append(nodes[-1] if nodes else ROOT)
        nodes.append(len(tokens))
        tokens.append(token)
    sequence, neighbour = Sequence(runner), Sequence(runner)
    together(sequence.sync(prefix), neighbour.sync(text(rng.randint(1, 80), 7)))
    rows, _ = together(sequence.complete(tokens, parents), neighbour.complete(text(5, 8), [ROOT, 0, 0, 1, 2]))
    more = text(2, 11)
    wanted = alone(runner, prefix, [*path, *more])
    assert all(torch.equal(rows.logits[node], row) for node, row in zip(nodes, wanted, strict=False))
    sequence.keep(nodes)
    rows = finish(sequence.complete(more, chain(2)))
    assert torch.equal(rows.logits, torch.stack(wanted[-2:]))


@pytest.mark.parametrize("weights", SMALL)
def test_rows_that_resume_have_the_bits_of_rows_that_do_not(weights: str) -> None:
    runner, drafted, more = native("llama", weights=weights), text(4, 5), text(2, 6)
    sequence, fresh, neighbour = Sequence(runner), Sequence(runner), Sequence(runner)
    together(sequence.sync(text(13)), fresh.sync(text(13)), neighbour.sync(text(30, 1)))
    finish(sequence.forward(drafted, plan=EXIT))
    rows, _ = together(
        sequence.complete([*drafted, *more], chain(6), frozenset({1, 4})), neighbour.complete(text(5), chain(5))
    )
    assert torch.equal(rows.logits, finish(fresh.complete([*drafted, *more], chain(6))).logits)


@pytest.mark.parametrize("weights", SMALL)
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_plain_text_for_every_draft(family: str, weights: str) -> None:
    runner = native(family, weights=weights)
    wanted = written(runner, "none")
    for kind in ("lookup", "exit", "skip"):
        assert written(runner, kind) == wanted


def test_one_term_is_coarser_and_has_the_same_bits_in_company_too() -> None:
    runner = LeanRunner.from_model(tiny_model("llama", intermediate_size=64), "int4")
    level = runner.kernels
    runner.use_activations(8)
    assert (runner.activations, runner.kernels) == (8, f"{level}, 8-bit activations")
    ids = text(24)
    rows = finish(Sequence(runner).complete(ids, chain(24))).logits
    assert CLOSE < off(rows, own_logits(exact_model("llama"), ids)) < 0.1
    assert torch.equal(torch.stack(alone(runner, ids[:4], ids[4:])), rows[4:])


@pytest.mark.parametrize("exit_layer", [None, 2])
def test_a_plan_may_take_other_activations_and_leaves_nothing_in_the_models_rows(exit_layer: int | None) -> None:
    runner, coarse = native("llama"), LeanRunner.from_model(tiny_model("llama", intermediate_size=64), "int4")
    coarse.use_activations(8)
    plan, drafted = FULL if exit_layer is None else EXIT, text(4, 5)
    sequence, fresh, other = Sequence(runner), Sequence(runner), Sequence(coarse)
    together(sequence.sync(text(13)), fresh.sync(text(13)))
    finish(other.sync(text(13)))
    rows = finish(sequence.forward(drafted, plan=replace(plan, activations=8)))
    fine = finish(fresh.forward(drafted, plan=plan))
    assert CLOSE < off(rows.logits, fine.logits) < 0.1
    with pytest.raises(ValueError, match="complete it first"):
        sequence.keep([0])
    wanted = finish(fresh.complete(drafted, chain(4)))
    assert torch.equal(finish(sequence.complete(drafted, chain(4))).logits, wanted.logits)
    # what the plan says holds for a runner with other activations of its own, too
    finish(other.complete(drafted, chain(4)))
    assert not torch.equal(finish(other.forward(text(1, 9))).logits, finish(sequence.forward(text(1, 9))).logits)


def test_a_batch_may_mix_activations() -> None:
    runner = native("llama")
    wanted = [written(runner, kind) for kind in ("none", "coarse")]
    assert wanted[0] == wanted[1]


@pytest.mark.parametrize("own", SMALL)
def test_restricted_heads_and_second_weights(own: str) -> None:
    runner = native("llama", weights=own)
    name = runner.add_head([9, 3, 40, 9])
    second, near = ("int8", 0.1) if own == "int4" else ("int4", 0.5)
    runner.add_weights(second)
    sequence = Sequence(runner)
    finish(sequence.sync(text(9)))
    whole = finish(sequence.forward(text(2, 1)))
    sequence.drop()
    some = finish(sequence.forward(text(2, 1), plan=LayerPlan(head=name)))
    assert some.logits[0].isfinite().nonzero().flatten().tolist() == [3, 9, 40]
    assert torch.equal(some.logits[:, [3, 9, 40]], whole.logits[:, [3, 9, 40]])
    assert torch.equal(runner.head(some.hidden, name), some.logits)
    sequence.drop()
    other = finish(sequence.forward(text(2, 1), plan=LayerPlan(weights=second)))
    assert 0 < off(other.logits, whole.logits) < near


def test_a_sequence_of_another_runner_is_refused() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "off")
        others = HFRunner(tiny_model("llama")), LeanRunner.from_model(tiny_model("llama"))
    for other in others:
        sequence = Sequence(other)
        sequence.runner = native("llama")
        with pytest.raises(UnsupportedModel, match="made for another runner"):
            finish(sequence.sync([1, 2]))


def test_a_prompt_may_want_no_row_at_all() -> None:
    rows = finish(Sequence(native("llama")).forward(text(5), want=0))
    assert rows.logits.shape == (0, 97)
