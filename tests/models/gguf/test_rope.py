"""Rotary scaling of GGUF files: the text is the source model's, on both decoders; what can't be applied is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from forerun.errors import UnsupportedModel
from forerun.models.lean.runner import LeanRunner
from forerun.models.loading.load import open_model
from forerun.models.packed.sequence import Sequence

from ..running import finish, off, own_logits
from .tiny_gguf import source, write_model

IDS = [int(one) for one in torch.randint(256, (90,), generator=torch.Generator().manual_seed(3))]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def llama3_factors(model: Any) -> np.ndarray:
    """What llama.cpp's converter writes: the plain frequencies divided by the scaled ones."""
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](model.config, device="cpu")
    plain = 1 / (10000.0 ** (torch.arange(0, 8, 2) / 8))
    return (plain / scaled).numpy()


def logits(file: Path, **options: Any) -> torch.Tensor:
    return finish(Sequence(open_model(file, **{"dtype": "float32", **options}).runner).forward(IDS)).logits


def agrees(file: Path, model: Any) -> None:
    expected = own_logits(model, IDS)
    for runner in ("lean", "hf"):
        actual = logits(file, runner=runner)
        assert off(actual, expected) < 1e-4
        assert torch.equal(actual.argmax(-1), expected.argmax(-1))


def test_llama_3s_factors_are_applied_on_both_decoders(tmp_path: Path) -> None:
    model = source(rope_parameters=LLAMA3)
    file = write_model(tmp_path / "m.gguf", model, tensors={"rope_freqs.weight": llama3_factors(model)})
    agrees(file, model)
    assert open_model(file).runner.max_length == 256


def test_llama_3s_factors_reach_the_4_bit_decoder(tmp_path: Path) -> None:
    scaled = source(rope_parameters=LLAMA3, intermediate_size=64)
    tensors = {"rope_freqs.weight": llama3_factors(scaled)}
    file = write_model(tmp_path / "m.gguf", scaled, tensors=tensors, kind="Q4_1")
    runner = open_model(file, weights="int4", device="cpu").runner
    assert isinstance(runner, LeanRunner)
    expected = logits(file)
    assert float((finish(Sequence(runner).forward(IDS)).logits - expected).norm() / expected.norm()) < 0.05


def test_factors_of_one_ask_for_nothing(tmp_path: Path) -> None:
    model = source(intermediate_size=64)
    file = write_model(tmp_path / "m.gguf", model, tensors={"rope_freqs.weight": np.ones(4)})
    agrees(file, model)
    assert isinstance(open_model(file, weights="int4", device="cpu").runner, LeanRunner)


@pytest.mark.parametrize(
    "keys",
    [
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        {"rope.scaling.factor": 4.0},
        {"rope.scale_linear": 4.0},
    ],
)
def test_linear_scaling_is_applied_however_it_is_written(tmp_path: Path, keys: dict[str, Any]) -> None:
    model = source(rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0})
    agrees(write_model(tmp_path / "m.gguf", model, keys=keys), model)


@pytest.mark.parametrize(
    ("extra", "more"),
    [
        ({}, {}),
        (
            {"rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0},
            {"beta_fast": 16.0, "beta_slow": 2.0},
        ),
        ({"rope.scaling.attn_factor": 1.5}, {"attention_factor": 1.5 * (1 + 0.1 * np.log(4.0))}),
        ({"rope.scaling.yarn_attn_factor": 0.5}, {"attention_factor": 0.5 * (1 + 0.1 * np.log(4.0))}),
    ],
)
def test_yarn_is_applied(tmp_path: Path, extra: dict[str, Any], more: dict[str, Any]) -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
    model = source(rope_parameters={**yarn, **more})
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 64,
        **extra,
    }
    agrees(write_model(tmp_path / "m.gguf", model, keys=keys), model)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_the_base_is_applied(tmp_path: Path, architecture: str) -> None:
    model = source(architecture, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    keys = {"rope.freq_base": 500.0}
    agrees(write_model(tmp_path / "m.gguf", model, architecture, keys=keys), model)


def test_gemma_has_a_base_for_near_and_one_for_far_layers(tmp_path: Path) -> None:
    near, far = (
        {"rope_type": "default", "rope_theta": 700.0},
        {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
    )
    model = source(
        "gemma3_text", rope_parameters={"sliding_attention": near, "full_attention": far}, tie_word_embeddings=True
    )
    keys = {
        "attention.key_length": 8,
        "attention.value_length": 8,
        "attention.sliding_window": 8,
        "attention.sliding_window_pattern": 2,
        "rope.freq_base": 5000.0,
        "rope.freq_base_swa": 700.0,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
    }
    agrees(write_model(tmp_path / "m.gguf", model, "gemma3", keys=keys), model)


def test_phi_3_has_factors_for_short_and_for_long_texts(tmp_path: Path) -> None:
    short, long = [1.0, 1.2, 1.4, 1.6], [1.0, 2.0, 3.0, 4.0]
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": short, "long_factor": long}
    rope |= {"original_max_position_embeddings": 128, "attention_factor": 1.19, "partial_rotary_factor": 1.0}
    model = source("phi3", rope_parameters=rope, sliding_window=None)
    keys = {
        "rope.scaling.original_context_length": 128,
        "rope.scaling.attn_factor": 1.19,
        "attention.sliding_window": 0,
    }
    factors = {"rope_factors_short.weight": np.array(short), "rope_factors_long.weight": np.array(long)}
    file = write_model(tmp_path / "m.gguf", model, "phi3", keys=keys, tensors=factors)
    assert off(logits(file), own_logits(model, IDS)) < 1e-4
    assert open_model(file).runner.max_length == 128


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"rope.scaling.type": "wonder"}, r"llama\.rope\.scaling\.type to 'wonder': known are none, linear, yarn"),
        ({"rope.scaling.type": "longrope"}, r"llama\.rope\.scaling\.type to 'longrope'"),
        ({"rope.scaling.attn_factor": 2.0}, r"llama\.rope\.scaling\.attn_factor to 2\.0"),
        (
            {"rope.scaling.type": "yarn", "rope.scaling.yarn_ext_factor": 0.5},
            r"llama\.rope\.scaling\.yarn_ext_factor to 0\.5",
        ),
        ({"rope.scaling.yarn_log_multiplier": 0.1}, r"llama\.rope\.scaling\.yarn_log_multiplier"),
        (
            {"rope.dimension_count": 4, "attention.key_length": 8},
            r"llama\.rope\.dimension_count to 4: .*whole heads, here 8",
        ),
        ({"rope.dimension_sections": [1, 1, 2, 0]}, r"llama\.rope\.dimension_sections"),
        ({"rope.freq_base_swa": 500.0}, r"llama\.rope\.freq_base_swa to 500\.0"),
        ({"rope.dimension_count_swa": 4}, r"llama\.rope\.dimension_count_swa to 4"),
    ],
)
def test_what_can_not_be_applied_is_refused_by_name(tmp_path: Path, keys: dict[str, Any], named: str) -> None:
    file = write_model(tmp_path / "m.gguf", source(), keys=keys)
    with pytest.raises(UnsupportedModel, match=r"m\.gguf sets " + named):
        open_model(file)


def test_two_scalings_at_once_are_refused(tmp_path: Path) -> None:
    keys = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    file = write_model(tmp_path / "m.gguf", source(), keys=keys, tensors={"rope_freqs.weight": np.arange(1, 5)})
    with pytest.raises(UnsupportedModel, match=r"it holds rope_freqs\.weight, too"):
        open_model(file)
