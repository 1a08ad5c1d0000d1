"""Decoders described and restored: each family comes back as it was, on whatever tensors it is given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.models.lean.layers import Norm
from forerun.models.lean.linear import Plain
from forerun.models.lean.mapped.decoder import Undescribed, describe, restore
from forerun.models.lean.mapped.file import open_file, write_file
from forerun.models.lean.native.library import SWITCH, Library
from forerun.models.lean.native.matrix import Repacked
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ...running import finish, text
from ..native.kernels import FAMILIES, LEVELS, kernels, native, needs_kernels

pytestmark = needs_kernels


def logits(runner: LeanRunner, plan: LayerPlan | None = None) -> torch.Tensor:
    sequence = Sequence(runner)
    return finish(sequence.forward(text(12)) if plan is None else sequence.forward(text(12), plan=plan)).logits


def again(runner: LeanRunner, tmp_path: Path) -> LeanRunner:
    """The same runner on a file."""
    assert isinstance(runner.native, Library)
    decoder, tensors = describe(runner.decoder)
    write_file(tmp_path / "w", {"decoder": decoder}, tensors)
    found = open_file(tmp_path / "w")
    return runner.on(restore(found.about["decoder"], found.tensors, runner.native, runner.shape))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_says_the_same_on_a_file(family: str, tmp_path: Path) -> None:
    runner = native(family)
    mapped = again(runner, tmp_path)
    assert mapped is not runner
    assert mapped.kernels == runner.kernels
    assert torch.equal(logits(mapped), logits(runner))


def test_a_description_is_json_and_names_each_tensor_once() -> None:
    decoder, tensors = describe(native("llama").decoder)
    assert json.loads(json.dumps(decoder)) == decoder

    def named(value: Any) -> list[int]:
        if isinstance(value, dict):
            return [value["tensor"]] if "tensor" in value else [one for part in value.values() for one in named(part)]
        return [one for part in value for one in named(part)] if isinstance(value, list) else []

    assert sorted(named(decoder)) == list(range(len(tensors)))


def test_matrices_lie_in_the_tensors_that_are_given(tmp_path: Path) -> None:
    runner = native("llama")
    decoder, tensors = describe(runner.decoder)
    found = restore(decoder, tensors, kernels(), runner.shape)
    mine, its = found.layers[1].down, runner.decoder.layers[1].down
    assert isinstance(mine, Repacked)
    assert isinstance(its, Repacked)
    assert mine is not its
    assert mine.view.data == its.view.data


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_is_the_embedding_again(tied: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, LEVELS[-1])
        model = tiny_model("llama", intermediate_size=64, tie_word_embeddings=tied)
        runner = LeanRunner.from_model(model, "int4")
    decoder, tensors = describe(runner.decoder)
    found = restore(decoder, tensors, kernels(), runner.shape)
    assert (found.head is found.embedding) == tied


def test_every_level_packs_the_same_bytes() -> None:
    made = [describe(native("qwen3", level).decoder) for level in LEVELS]
    for decoder, tensors in made[1:]:
        assert decoder == made[0][0]
        assert all(torch.equal(mine, its) for mine, its in zip(tensors, made[0][1], strict=True))


def test_second_weights_and_heads_are_added_to_a_mapped_model(tmp_path: Path) -> None:
    runner = native("qwen2")
    mapped = again(runner, tmp_path)
    for one in (runner, mapped):
        one.add_weights("int8")
        head = one.add_head([3, 5, 7])
    assert torch.equal(logits(mapped, LayerPlan(weights="int8")), logits(runner, LayerPlan(weights="int8")))
    assert torch.equal(logits(mapped, LayerPlan(head=head)), logits(runner, LayerPlan(head=head)))


def test_a_form_without_a_description_is_named() -> None:
    decoder = native("llama").decoder
    with pytest.raises(Undescribed, match="no description of Plain is kept"):
        describe(replace(decoder, head=Plain(torch.ones(3, 4))))


def test_a_class_of_the_same_name_is_another_one() -> None:
    other = type("Norm", (), {})()
    with pytest.raises(Undescribed, match="Norm"):
        describe(replace(native("llama").decoder, final_norm=other))


@pytest.mark.parametrize(
    ("description", "error"),
    [
        ({"kind": "Nothing", "has": {}}, KeyError),
        ({"tensor": 5}, IndexError),
        ({"kind": "Decoder", "has": {}}, TypeError),
        ({"kind": "Norm", "has": {}}, TypeError),
        ({"given": "weather"}, KeyError),
        ({"again": 1}, IndexError),
        ({"torch": "no dtype"}, RuntimeError),
        (7, TypeError),
    ],
)
def test_a_description_of_something_else_is_refused(description: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        restore(description, [], kernels(), native("llama").shape)


def test_a_norm_is_not_scaled_again() -> None:
    runner = native("llama")
    decoder, tensors = describe(runner.decoder)
    found = restore(decoder, tensors, kernels(), runner.shape)
    assert isinstance(found.final_norm, Norm)
    assert torch.equal(found.final_norm.weight, runner.decoder.final_norm.weight)
