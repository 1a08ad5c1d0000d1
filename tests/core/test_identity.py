"""An identity is that of the weights and the vocabulary, not of the type they are held in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from forerun.core.identity import Identity, identity_of
from forerun.models.loading.load import open_model
from forerun.testing import save_tiny, tiny_model

WORDS = {"a": 0, "b": 1}


def test_the_type_of_the_weights_makes_no_difference() -> None:
    model = tiny_model("llama").bfloat16()

    assert identity_of(model, WORDS) == identity_of(model.float(), WORDS)


def test_a_change_of_one_matrix_is_seen() -> None:
    model = tiny_model("llama")
    before = identity_of(model, None)
    with torch.no_grad():
        model.model.layers[-1].mlp.down_proj.weight.add_(0.01)

    assert (before.difference(identity_of(model, None)) or "").startswith("weights is ")


def test_families_and_sizes_are_told_apart() -> None:
    llama, mistral = identity_of(tiny_model("llama"), None), identity_of(tiny_model("mistral"), None)

    assert (llama.difference(mistral) or "").startswith("family is llama here and mistral there")
    assert (llama.difference(replace(llama, hidden_size=8)) or "").startswith("hidden_size is")


def test_another_vocabulary_is_seen_and_a_missing_one_is_no_difference() -> None:
    model = tiny_model("llama")
    mine = identity_of(model, WORDS)

    assert (mine.difference(identity_of(model, {"a": 1, "b": 0})) or "").startswith("vocabulary is")
    assert mine.difference(identity_of(model, None)) is None
    assert mine == identity_of(model, {"b": 1, "a": 0})


def test_it_survives_json() -> None:
    identity = identity_of(tiny_model("llama"), WORDS)

    assert Identity.from_dict(identity.as_dict()) == identity
    with pytest.raises(ValueError, match="weights is missing"):
        Identity.from_dict({name: value for name, value in identity.as_dict().items() if name != "weights"})


@pytest.mark.parametrize("weights", ["", "int8"])
@pytest.mark.parametrize("runner", ["auto", "hf"])
def test_every_way_of_opening_a_model_gives_the_same_identity(tmp_path: Path, weights: str, runner: str) -> None:
    if weights and runner == "hf":
        return
    save_tiny(tmp_path, "llama")
    expected = open_model(tmp_path).identity

    assert open_model(tmp_path, weights=weights, runner=runner).identity == expected
    assert open_model(tmp_path, dtype="bfloat16").identity == expected
