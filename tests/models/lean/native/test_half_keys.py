"""Keys and values in bfloat16: near those in float32, and a row's bits the same in any company there, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from forerun.core.values import ROOT
from forerun.models.lean.native.store import BlockStore
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.sequence import Sequence

from ...running import chain, finish, text
from ..test_runner import off
from .kernels import LEVELS, native, needs_kernels

pytestmark = needs_kernels
# a share of the logits' spread
NEAR = 2e-2
FAMILIES = ("llama", "gemma3_text", "olmo2")


@pytest.fixture(params=[(family, level) for level in LEVELS for family in FAMILIES], ids=str)
def runner(request: pytest.FixtureRequest) -> Iterator[LeanRunner]:
    runner = native(*request.param)
    assert runner._step is not None
    runner._step.half = True
    yield runner
    runner._step.half = False


def alone(runner: LeanRunner, prefix: list[int], tokens: list[int]) -> list[torch.Tensor]:
    sequence = Sequence(runner)
    finish(sequence.sync(prefix))
    rows = []
    for token in tokens:
        rows.append(finish(sequence.complete([token], [ROOT])).logits[0].clone())
        sequence.keep([0])
    return rows


def test_rows_have_the_same_bits_alone_in_a_chain_in_a_tree_and_in_prefill(runner: LeanRunner) -> None:
    prefix, tokens = text(70), text(5, 3)
    wanted = alone(runner, prefix, tokens)
    whole = finish(Sequence(runner).complete([*prefix, *tokens], chain(75))).logits[70:]
    chained, tree = Sequence(runner), Sequence(runner)
    for sequence in (chained, tree):
        finish(sequence.sync(prefix))
    rows = finish(chained.complete(tokens, chain(5))).logits
    branches = finish(
        tree.complete([9, tokens[0], 8, tokens[1], 7, *tokens[2:]], [ROOT, ROOT, 1, 1, 3, 3, 5, 6])
    ).logits[[1, 3, 5, 6, 7]]
    for found in (whole, rows, branches):
        assert all(torch.equal(row, own) for row, own in zip(found, wanted, strict=True))


def test_a_kept_branch_moves_to_where_plain_decoding_has_it(runner: LeanRunner) -> None:
    prefix, tokens = text(30), text(3, 3)
    sequence = Sequence(runner)
    finish(sequence.sync(prefix))
    finish(sequence.complete([9, tokens[0], 8, tokens[1]], [ROOT, ROOT, 1, 1]))
    sequence.keep([1, 3])
    last = finish(sequence.complete([tokens[2]], [ROOT])).logits[0]
    assert torch.equal(last, alone(runner, prefix, tokens)[2])


def test_logits_are_near_those_of_float32(runner: LeanRunner) -> None:
    ids = text(40)
    half = finish(Sequence(runner).complete(ids, chain(40))).logits.clone()
    assert runner._step is not None
    runner._step.half = False
    single = finish(Sequence(runner).complete(ids, chain(40))).logits
    assert 0 < off(half, single) < NEAR


def test_a_sequence_keeps_the_form_that_it_began_with(runner: LeanRunner) -> None:
    sequence, other = Sequence(runner), Sequence(runner)
    assert isinstance(sequence._store, BlockStore)
    assert sequence._store.half
    wanted = finish(other.complete(text(9), chain(9))).logits.clone()
    assert runner._step is not None
    runner._step.half = False
    assert torch.equal(finish(sequence.complete(text(9), chain(9))).logits, wanted)
