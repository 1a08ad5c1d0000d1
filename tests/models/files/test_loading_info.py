"""What transformers tells about a checkpoint that it has read: which of it matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.errors import UnsupportedModel
from forerun.models.files.loading_info import check_complete, check_sizes

MODEL = torch.nn.Linear(2, 2)
HERE = Path("some/model")


def info(**keys: Any) -> dict[str, Any]:
    return {"missing_keys": set(), "unexpected_keys": set(), "mismatched_keys": set(), **keys}


def test_a_checkpoint_that_fits_passes() -> None:
    check_complete(MODEL, info(), HERE)


def test_missing_weights_are_counted_and_one_is_named() -> None:
    with pytest.raises(
        UnsupportedModel, match=r"some/model lacks weights that a Linear needs, such as a\.w \(2 in all\)"
    ):
        check_complete(MODEL, info(missing_keys={"b.w", "a.w"}), HERE)


def test_what_transformers_reports_as_an_error_is_told() -> None:
    with pytest.raises(UnsupportedModel, match=r"weights that a Linear can't take: size of a$"):
        check_complete(MODEL, info(error_msgs=["size of a\nand more"]), HERE)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.cos_cached",
        "transformer.h.3.attn.bias",
        "h.3.attn.masked_bias",
        "gpt_neox.layers.0.attention.bias",
        "model.embeddings.position_ids",
        "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
        "model.visual.blocks.0.attn.qkv.weight",
        "audio_tower.conv1.weight",
        "multi_modal_projector.linear_1.weight",
        "v_head.summary.weight",
    ],
)
def test_what_says_nothing_about_the_text_is_harmless(name: str) -> None:
    check_complete(MODEL, info(unexpected_keys={name}), HERE)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.7.mlp.up_proj.weight",
        "model.layers.0.mlp.experts.4.down_proj.weight",
        "model.layers.0.self_attn.q_proj.weight_scale",
        "model.layers.0.self_attn.q_proj.qweight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "lm_head.bias",
        "value_head.weight",
    ],
)
def test_what_would_change_the_text_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedModel, match=rf"no place for, such as {name} \(1 in all\); .* correct config\.json"):
        check_complete(MODEL, info(unexpected_keys={name, "rotary_emb.inv_freq"}), HERE)


def test_a_weight_of_another_size_is_named_with_both_sizes() -> None:
    keys = {("b", torch.Size([3, 4]), torch.Size([5])), ("a", torch.Size([2]), torch.Size([2, 2]))}
    with pytest.raises(UnsupportedModel, match=r"x\.gguf holds a as 2, and its configuration makes it 2 x 2 \(2 such"):
        check_sizes(info(mismatched_keys=keys), "x.gguf")
