"""A decoder of any family of transformers, small enough to build and run in seconds.

Sizes are shrunk by the names of a configuration's fields, nested ones included; lists with an entry for each layer are
cut. Windows are 8 wide, so that they bite within a few tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 97
WINDOW = 8
LAYERS = 4
LONGEST = 256

# the first that matches a field's whole name says its small value; what isn't named here stays as it is
SIZES: tuple[tuple[str, int], ...] = (
    (r"(decoder_|unpadded_)?vocab_size(_per_layer_input)?|ngram_vocab_size_base", VOCABULARY),
    (
        r"max_position_embeddings|n_positions|n_ctx|max_seq_len|max_target_positions|context_length|model_max_length",
        LONGEST,
    ),
    (r"hidden_size_per_layer_input|laurel_rank|router_hidden_size|hc_lowrank", 8),
    (r"moe_intermediate_size|expert_ffn_hidden_size", 24),
    (r".*intermediate_size(_mlp)?|.*ffn_dim|d_?ff|dim_ff|d_inner|ffn_hidden_size|feed_forward_size|mlp_dim", 48),
    (r"(.*_)?hidden_size(_global)?|d_model|n_embd|emb(edding)?_dim|.*embedding_size|word_embed_proj_dim", 32),
    (r"projector_(in|out)put_dim|vision_output_dim|ple_embed_dim|out_hidden_size|adapter_out_dim|lru_width", 32),
    (r"num_hidden_layers|n_layers?|num_layers|num_(de|en)coder_layers|(de|en)coder_layers|num_blocks|depth", LAYERS),
    (r"num_layers_per_stack|n_(in|out)put_layers|n_recurrent_layers|num_global_layers", 2),
    (r".*num_key_value_heads|num_kv_heads|kv_n_heads|num_query_groups", 2),
    (r".*num_(en|de)?(coder_)?attention_heads|(en|de)coder_attention_heads|attention_heads|n_heads?|num_heads", 4),
    (r"mamba_d_head|mamba_head_dim|mamba_headdim", 16),
    (r"mamba_d_ssm", 64),
    (r"mamba_(n_|num_)?heads|n_mamba_heads|linear_num_(key|value)_heads|index_n_heads", 4),
    (r"linear_(key_|value_)?head_dim|index_head_dim|kv_channels|d_head|d_kv|dim_head|attention_head_size", 8),
    (r"qk_rope_head_dim|rotary_dim", 4),
    (r"qk_head_dim", 12),
    (r"(.*_)?head_dim|query_pre_attn_scalar", 8),
    (r".*_lora_rank|d_rel|gated_norm_rank", 16),
    (r"num_experts|.*num_local_experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok(en)?|moe_topk|moe_k|moe_top_k|top_k_experts", 2),
    (r"n_group|num_expert_group", 2),
    (r"topk_group", 1),
    (r"sliding_window(_size)?|window_size|attention_window_size|attention_chunk_size|floor_scale", WINDOW),
    (r"image_size", 32),
    (r"num_(nextn_predict|mtp)_layers|zero_expert_num", 0),
)
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TOKENS = re.compile(r".*(token_id|token_index|_index)s?")

# what a family's configuration can't be made without, and what its small one needs beside the sizes
NEEDED: dict[str, dict[str, Any]] = {"gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0}}}
QSA: dict[str, Any] = {
    "indexer_budget": 8,
    "indexer_compress_ratio": 2,
    "indexer_head_dim": 8,
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
}
FITTED: dict[str, dict[str, Any]] = {
    "blenderbot": {"encoder_layers": LAYERS},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "deepseek_v2": {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 2},
    "dory": {
        "n_input_layers": 2,
        "n_recurrent_layers": 4,
        "n_output_layers": 2,
        "num_hidden_layers": 8,
        "layer_types": [kind for one in ("sliding", "full") * 2 for kind in (f"{one}_attention", "mlp")],
    },
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "n_shared_experts": 1},
    "moshi": {"sliding_window": 128},
    "hrm_text": {"num_hidden_layers": 16},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
    "mamba2": {"head_dim": 16},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "qwen4_exp": QSA,
    "qwen4_exp_text": QSA,
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [16, 16]},
    "xmod": {"default_language": "en_XX"},
}


def small_config(family: str, changes: Mapping[str, Any] | None = None) -> Any:
    """A small configuration of a model type; changes go into its text part."""
    kind = CONFIG_MAPPING[family]
    shrunk = _shrunk(kind(**NEEDED.get(family, {})).to_dict())
    nested = next((name for name in ("text_config", "decoder") if isinstance(shrunk.get(name), dict)), None)
    for name, value in {**FITTED.get(family, {}), **(changes or {})}.items():
        (shrunk if nested is None else shrunk[nested])[name] = value
    return kind.from_dict(shrunk)


def small_model(family: str, changes: Mapping[str, Any] | None = None, seed: int = 0) -> Any:
    """A random model of small_config in float32, its weights large enough for lively logits."""
    config = small_config(family, changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for parameter in model.parameters():
            if parameter.ndim >= 2 or not parameter.isfinite().all():
                torch.nn.init.normal_(parameter, std=0.25)
    return model.eval()


def _shrunk(fields: Mapping[str, Any]) -> dict[str, Any]:
    mla = "kv_lora_rank" in fields
    layers = next((fields[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if name in fields), 0)
    shrunk = {name: _value(name, value, layers or 0) for name, value in fields.items()}
    if mla:
        shrunk["num_key_value_heads"] = shrunk["num_attention_heads"]
        shrunk["head_dim"] = shrunk.get("qk_rope_head_dim", 4)
    return shrunk


def _value(name: str, value: Any, layers: int) -> Any:
    if isinstance(value, dict):
        if name == "per_layer_config":
            return {layer: _shrunk(own) for layer, own in value.items() if int(layer) < LAYERS}
        return _shrunk(value) if name != "rope_parameters" else value
    if isinstance(value, list) and layers > LAYERS and len(value) == layers:
        return cut(value)
    if name == "is_decoder":
        return True
    if isinstance(value, int) and not isinstance(value, bool):
        if TOKENS.fullmatch(name):
            return min(value, IDS.get(name, VOCABULARY - 2))
        if small := next((size for pattern, size in SIZES if re.fullmatch(pattern, name)), None):
            return min(value, small)
    return value


def cut(entries: list[Any]) -> list[Any]:
    """The entries of the first layers, the last replaced by a kind of layer that would be missing."""
    first = entries[:LAYERS]
    missing = [entry for entry in entries if entry not in first]
    return [*first[:-1], missing[0]] if missing else first
