"""Tiny random models of every supported family, built in code, whose windows and soft caps bite within a few tokens."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 97
WINDOW = 8

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
_MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
_MLA = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "head_dim": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": WINDOW},
    "gemma": {},
    "gemma2": {
        "sliding_window": WINDOW,
        "layer_types": _MIXED,
        "attn_logit_softcapping": 0.5,
        "final_logit_softcapping": 2.0,
        "query_pre_attn_scalar": 8,
    },
    "gemma3_text": {"sliding_window": WINDOW, "layer_types": _MIXED, "query_pre_attn_scalar": 8},
    "phi3": {"sliding_window": WINDOW},
    "olmo2": {},
    "olmo3": {"sliding_window": WINDOW, "layer_types": _MIXED},
    "granite": {"embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 3.0},
    "gpt2": {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 256, "n_inner": 48},
    "gpt_neox": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 1},
    "deepseek_v3": _MLA,
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
}


def tiny_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """A random model of the family with 4 layers, 97 tokens and weights large enough for lively logits, in float32."""
    options = {**_COMMON, **FAMILIES.get(family, {}), **changes}
    config = AutoConfig.for_model(family, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                torch.nn.init.normal_(parameter, std=0.25)
    return model.eval()
