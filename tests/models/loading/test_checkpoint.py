"""Directories that transformers would read with a shrug: one sentence each, and the vision-language ones that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

from forerun.errors import ForerunError, InvalidModelFile, UnsupportedModel
from forerun.models.files.quiet import quiet
from forerun.models.lean.runner import LeanRunner
from forerun.models.loading.load import open_model
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import save_tiny, save_tiny_draft, tiny_model

from ..running import finish, off, own_logits, text


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


def change(directory: Path, **weights: torch.Tensor | None) -> None:
    """Put tensors into a checkpoint, or take them out; __ stands for a dot."""
    file = directory / "model.safetensors"
    held = load_file(file)
    for name, value in weights.items():
        held.pop(name.replace("__", "."), None)
        if value is not None:
            held[name.replace("__", ".")] = value
    save_file(held, file, metadata={"format": "pt"})


def by_transformers(directory: Path) -> Any:
    with quiet():
        return AutoModelForCausalLM.from_pretrained(directory).eval()


@pytest.mark.parametrize("runner", ["lean", "hf"])
def test_biases_that_the_configuration_has_not_are_refused(directory: Path, runner: str) -> None:
    change(directory, model__layers__1__self_attn__q_proj__bias=torch.ones(32))
    with pytest.raises(
        UnsupportedModel,
        match=r"weights that a LlamaForCausalLM .* has no place for, such as model\.layers\.1\.self_attn\.q_proj\.bias \(1",
    ):
        open_model(directory, runner=runner)


def test_more_layers_than_the_configuration_says_are_refused(directory: Path) -> None:
    config = directory / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "num_hidden_layers": 2}))
    with pytest.raises(UnsupportedModel, match=r"no place for, such as model\.layers\.2\.\S+ \(18 in all\)"):
        open_model(directory)


def test_a_head_beside_tied_embeddings_is_taken_as_transformers_takes_it(tmp_path: Path) -> None:
    for other in (0.0, 1.0):
        directory = save_tiny(tmp_path / f"tied-{other}", tie_word_embeddings=True)
        embedding = load_file(directory / "model.safetensors")["model.embed_tokens.weight"]
        change(directory, lm_head__weight=embedding.flip(0) if other else embedding.clone())
        expected = own_logits(by_transformers(directory), text(9))
        for runner in ("lean", "hf"):
            actual = finish(Sequence(open_model(directory, runner=runner).runner).forward(text(9))).logits
            assert off(actual, expected) < 1e-4


def test_tables_that_old_releases_kept_are_no_hindrance(directory: Path) -> None:
    tables = {f"model__layers__{layer}__self_attn__rotary_emb__inv_freq": torch.ones(4) for layer in range(4)}
    change(directory, **tables, model__layers__0__self_attn__masked_bias=torch.ones(1))
    assert open_model(directory).name == "tiny"


@pytest.mark.parametrize("runner", ["lean", "hf"])
def test_a_weight_of_another_size_is_named_with_both(directory: Path, runner: str) -> None:
    change(directory, model__layers__2__mlp__up_proj__weight=torch.ones(3, 4))
    with pytest.raises(
        UnsupportedModel,
        match=r"model\.layers\.2\.mlp\.up_proj\.weight as 3 x 4, and its configuration makes it 48 x 32",
    ):
        open_model(directory, runner=runner)


@pytest.mark.parametrize("runner", ["lean", "hf", "auto"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_named(directory: Path, runner: str, value: float) -> None:
    weight = load_file(directory / "model.safetensors")["model.layers.2.mlp.up_proj.weight"]
    weight[3, 4] = value
    change(directory, model__layers__2__mlp__up_proj__weight=weight)
    with pytest.raises(
        UnsupportedModel, match=r"weight model\.layers\.2\.mlp\.up_proj\.weight holds NaN .*\(1 of 1536\)"
    ):
        open_model(directory, runner=runner)


@pytest.mark.parametrize("content", ["", "{", "{'eos_token_id': 3}"])
def test_a_generation_configuration_that_can_not_be_read_is_not_passed_over(directory: Path, content: str) -> None:
    (directory / "generation_config.json").write_text(content)
    with pytest.raises(InvalidModelFile, match=r"generation_config\.json is corrupt or truncated, download it again"):
        open_model(directory)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not a valid JSON file"),
        ('{"model_type": "wonder"}', "has model type `wonder` but Transformers does not recognize this architecture"),
        (
            '{"model_type": "llama", "hidden_size": "x"}',
            "'hidden_size': TypeError: .* expected int, got str",
        ),
        (
            '{"model_type": "x", "auto_map": {"AutoConfig": "code.C"}}',
            "needs code of its own; give trust_remote_code=True",
        ),
    ],
)
def test_a_configuration_that_can_not_be_used_is_one_sentence(directory: Path, content: str, said: str) -> None:
    (directory / "config.json").write_text(content)
    with pytest.raises(ForerunError, match=said) as caught:
        open_model(directory)
    assert "\n" not in str(caught.value)


def vision_language(path: Path) -> Path:
    own = tiny_model("gemma3_text", tie_word_embeddings=True)
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Gemma3Config(
        text_config=own.config.to_dict(),
        vision_config={**vision, "image_size": 16, "patch_size": 8},
        mm_tokens_per_image=4,
        image_token_index=96,
        boi_token_index=95,
        eoi_token_index=94,
        eos_token_id=7,
    )
    with torch.random.fork_rng(devices=[]):
        model = Gemma3ForConditionalGeneration(config)
    model.model.language_model.load_state_dict(own.model.state_dict())
    model.save_pretrained(path)
    return path


@pytest.mark.parametrize(("runner", "kind"), [("auto", LeanRunner), ("lean", LeanRunner), ("hf", HFRunner)])
def test_the_text_part_of_a_vision_language_model_runs(tmp_path: Path, runner: str, kind: type) -> None:
    directory = vision_language(tmp_path / "gemma")
    loaded = open_model(directory, runner=runner)
    assert isinstance(loaded.runner, kind)
    expected = own_logits(by_transformers(directory), text(19))
    assert off(finish(Sequence(loaded.runner).forward(text(19))).logits, expected) < 1e-4
    assert off(expected, own_logits(tiny_model("gemma3_text", tie_word_embeddings=True), text(19))) < 1e-4


def test_a_compact_draft_is_no_model_of_its_own(tmp_path: Path) -> None:
    directory = save_tiny_draft(tmp_path / "small", tiny_model("llama"), (0,))
    with pytest.raises(UnsupportedModel, match=r"small holds a compact draft, .*--drafter-model .*small"):
        open_model(directory)
