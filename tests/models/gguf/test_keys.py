"""Every key of a GGUF file that changes the result is applied, as its source model shows, or refused by name."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from forerun.errors import UnsupportedModel
from forerun.models.gguf.convert import converted
from forerun.models.loading.load import open_model
from forerun.models.packed.sequence import Sequence

from ..running import finish, off, own_logits
from .tiny_gguf import source, write_model

IDS = [int(one) for one in torch.randint(256, (30,), generator=torch.Generator().manual_seed(3))]
GEMMA = {
    "attention.key_length": 8,
    "attention.value_length": 8,
    "attention.sliding_window": 8,
    "rope.freq_base_swa": 10000.0,
}


def agrees(file: Path, model: Any) -> None:
    runner = open_model(file, dtype="float32").runner
    assert off(finish(Sequence(runner).forward(IDS)).logits, own_logits(model, IDS)) < 1e-4


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_plain_model_is_its_source(tmp_path: Path, family: str) -> None:
    model = source(family)
    agrees(write_model(tmp_path / "m.gguf", model, family), model)


def test_biases_of_the_projections_are_applied(tmp_path: Path) -> None:
    model = source(attention_bias=True, mlp_bias=True)
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(value)
    agrees(write_model(tmp_path / "m.gguf", model), model)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_heads_may_be_wider_than_the_stream_says(tmp_path: Path, family: str) -> None:
    model = source(family, head_dim=16)
    keys = {"attention.key_length": 16, "attention.value_length": 16}
    agrees(write_model(tmp_path / "m.gguf", model, family, keys=keys), model)


def test_the_norms_epsilon_and_the_context_are_read(tmp_path: Path) -> None:
    model = source(rms_norm_eps=0.5, max_position_embeddings=48)
    file = write_model(tmp_path / "m.gguf", model)
    agrees(file, model)
    assert open_model(file).runner.max_length == 48


def test_soft_caps_and_the_scale_of_gemma_2_are_applied(tmp_path: Path) -> None:
    model = source("gemma2", tie_word_embeddings=True)
    keys = {"attn_logit_softcapping": 0.5, "final_logit_softcapping": 2.0, **GEMMA}
    del keys["rope.freq_base_swa"]
    agrees(write_model(tmp_path / "m.gguf", model, "gemma2", keys=keys), model)


@pytest.mark.parametrize("pattern", [2, [True, False, True, False]])
def test_gemma_3_says_which_layers_see_a_window(tmp_path: Path, pattern: Any) -> None:
    near, far = ({"rope_type": "default", "rope_theta": theta} for theta in (10000.0, 10000.0))
    model = source(
        "gemma3_text", tie_word_embeddings=True, rope_parameters={"sliding_attention": near, "full_attention": far}
    )
    keys = {**GEMMA, "attention.sliding_window_pattern": pattern}
    agrees(write_model(tmp_path / "m.gguf", model, "gemma3", keys=keys), model)


def test_the_window_of_phi_3_is_applied(tmp_path: Path) -> None:
    model = source("phi3")
    agrees(write_model(tmp_path / "m.gguf", model, "phi3", keys={"attention.sliding_window": 8}), model)


def test_the_experts_of_qwen_3_are_as_many_and_as_wide_as_the_file_says(tmp_path: Path) -> None:
    model = source("qwen3_moe", norm_topk_prob=True)
    keys = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 24, "attention.key_length": 8}
    agrees(write_model(tmp_path / "m.gguf", model, "qwen3moe", keys=keys), model)


def test_shared_experts_are_as_wide_as_the_file_says(tmp_path: Path) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 1}
    model = source("qwen2_moe", **experts, shared_expert_intermediate_size=40)
    keys = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 24}
    keys["expert_shared_feed_forward_length"] = 40
    agrees(write_model(tmp_path / "m.gguf", model, "qwen2moe", keys=keys), model)


@pytest.mark.parametrize("window", [None, 8])
def test_base_epsilon_and_window_of_starcoder_2_are_applied(tmp_path: Path, window: int | None) -> None:
    rope = {"rope_type": "default", "rope_theta": 500.0}
    model = source("starcoder2", rope_parameters=rope, sliding_window=window, norm_epsilon=0.5)
    keys = {"attention.layer_norm_epsilon": 0.5, "rope.freq_base": 500.0, "attention.sliding_window": window}
    agrees(write_model(tmp_path / "m.gguf", model, "starcoder2", keys=keys), model)


@pytest.mark.parametrize(("family", "turned"), [("phi3", 4), ("stablelm", 2), ("nemotron", 8)])
def test_a_part_of_each_head_is_rotated_where_the_file_says_so(tmp_path: Path, family: str, turned: int) -> None:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": turned / 8}
    epsilon = {"norm_eps": 0.5} if family == "nemotron" else {"layer_norm_eps": 0.5} if family == "stablelm" else {}
    model = source(family, rope_parameters=rope, sliding_window=None, **epsilon)
    keys = {"rope.dimension_count": turned, "attention.layer_norm_epsilon": 0.5 if epsilon else None}
    file = write_model(tmp_path / "m.gguf", model, family, keys=keys)
    unpacked = AutoModelForCausalLM.from_pretrained(converted(file, torch.float32)).eval()
    assert off(own_logits(unpacked, IDS), own_logits(model, IDS)) < 1e-4


@pytest.mark.parametrize(
    "keys",
    [
        {"logit_scale": 1.0, "residual_scale": 0.0, "embedding_scale": 1.0},
        {"expert_count": 0, "expert_used_count": 0},
        {"attention.sliding_window": 256, "attn_logit_softcapping": 0.0, "rope.scaling.type": "none"},
        {"attention.causal": True, "attention.max_alibi_bias": 0.0, "attention.clamp_kqv": 0.0, "vocab_size": 260},
        {"attention.scale": 8**-0.5, "attention.key_length": 8},
    ],
)
def test_keys_that_ask_for_nothing_are_no_hindrance(tmp_path: Path, keys: dict[str, Any]) -> None:
    model = source()
    agrees(write_model(tmp_path / "m.gguf", model, keys=keys), model)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("logit_scale", 0.25),
        ("residual_scale", 0.5),
        ("embedding_scale", 12.0),
        ("attention.scale", 0.5),
        ("attention.value_length", 16),
        ("attention.sliding_window", 8),
        ("attention.sliding_window_pattern", 2),
        ("attention.causal", False),
        ("attention.clamp_kqv", 4.0),
        ("attention.max_alibi_bias", 8.0),
        ("attention.temperature_scale", 0.1),
        ("attn_logit_softcapping", 30.0),
        ("final_logit_softcapping", 30.0),
        ("router_logit_softcapping", 30.0),
        ("expert_count", 4),
        ("expert_weights_scale", 2.5),
        ("expert_gating_func", 2),
        ("leading_dense_block_count", 1),
        ("nextn_predict_layers", 1),
        ("feed_forward_length", [48, 64, 48, 48]),
        ("attention.head_count_kv", [2, 4, 2, 2]),
        ("pooling_type", 1),
        ("made.up.by.a.converter", 1),
    ],
)
def test_a_key_that_can_not_be_applied_is_refused_by_name(tmp_path: Path, key: str, value: Any) -> None:
    file = write_model(tmp_path / "m.gguf", source(), keys={key: value})
    with pytest.raises(UnsupportedModel, match=rf"m\.gguf sets llama\.{key.replace('.', '[.]')} to ") as caught:
        open_model(file)
    assert "\n" not in str(caught.value)


def test_no_key_of_the_format_is_dropped_without_a_word(tmp_path: Path) -> None:
    """What gguf knows under an architecture: with a value that nobody has, all are applied or refused."""
    from forerun.models.gguf.header import Header
    from forerun.models.gguf.keys import settle_config

    def every(group: type) -> list[str]:
        own = [value for value in vars(group).values() if isinstance(value, str) and value.startswith("{arch}.")]
        return own + [key for inner in vars(group).values() if isinstance(inner, type) for key in every(inner)]

    epsilons = ("layer_norm_epsilon", "layer_norm_rms_epsilon", "group_norm_epsilon")
    described = {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned"}
    needed = {"rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.original_context_length"}
    needed |= {"rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"}
    values = {
        "rope.dimension_sections": [1, 1],
        "attention.head_count": 2,
        **{f"attention.{name}": 0.5 for name in epsilons},
    }
    checked, plain = 0, source().config
    for key in {key.removeprefix("{arch}.") for key in every(gguf.Keys)} - described - needed:
        config = deepcopy(plain)
        before = config.to_dict()
        keys = {
            "general.architecture": "llama",
            "tokenizer.ggml.model": "llama",
            f"llama.{key}": values.get(key, 12345),
        }
        refused = ""
        try:
            settle_config(Header("m.gguf", "llama", keys, (), {}), config)
        except UnsupportedModel as error:
            refused = str(error)
        assert f"llama.{key}" in refused or config.to_dict() != before, key
        checked += 1
    assert checked > 80


@pytest.mark.parametrize(
    "name", ["blk.1.attn_q.bias", "blk.4.attn_q.weight", "blk.0.attn_sinks.weight", "blk.0.made_up.weight"]
)
def test_a_tensor_without_a_place_is_refused_by_name(tmp_path: Path, name: str) -> None:
    file = write_model(tmp_path / "m.gguf", source(), tensors={name: np.ones(32)})
    with pytest.raises(
        UnsupportedModel, match=rf"holds tensors that a LlamaForCausalLM has no place for, such as {name}"
    ):
        open_model(file)


def test_old_rotary_tables_are_no_hindrance(tmp_path: Path) -> None:
    model = source()
    agrees(write_model(tmp_path / "m.gguf", model, tensors={"blk.0.attn_rot_embd.weight": np.ones(4)}), model)


def test_a_file_that_names_no_end_has_none(tmp_path: Path) -> None:
    assert open_model(write_model(tmp_path / "m.gguf", source(), tokenizer={"eos_token_id": None})).eos == frozenset()
