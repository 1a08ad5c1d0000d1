"""A Llama of a few kilobytes as a GGUF file, byte-level vocabulary included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import pre_tokenizers

from forerun.testing import tiny_model

END = 257
TEMPLATE = "{% for message in messages %}{{ '<' + message.role + '>' + message.content }}{% endfor %}"


def source(family: str = "llama", **changes: Any) -> Any:
    """A model whose text is what the file made of it must give."""
    return tiny_model(family, vocab_size=260, **changes)


def write_gguf(
    path: Path, architecture: str = "llama", layers: int = 2, seed: int = 0, kind: str = "F32", tied: bool = False
) -> Path:
    """Random weights, matrices of the given type; END ends a text."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(1e-5)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, "th", "<end>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * END + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(END)
    writer.add_bos_token_id(END)
    writer.add_chat_template(TEMPLATE)
    shapes = {"token_embd": (END + 1, 32), "output": (END + 1, 32), "output_norm": (32,)}
    for layer in range(layers):
        shapes |= {
            f"blk.{layer}.attn_q": (32, 32),
            f"blk.{layer}.attn_k": (16, 32),
            f"blk.{layer}.attn_v": (16, 32),
            f"blk.{layer}.attn_output": (32, 32),
            f"blk.{layer}.attn_norm": (32,),
            f"blk.{layer}.ffn_gate": (64, 32),
            f"blk.{layer}.ffn_up": (64, 32),
            f"blk.{layer}.ffn_down": (32, 64),
            f"blk.{layer}.ffn_norm": (32,),
        }
    quantised = gguf.GGMLQuantizationType[kind]
    for name, shape in shapes.items():
        values = rng.normal(scale=0.25, size=shape) if len(shape) == 2 else np.ones(shape)
        values = values.astype(np.float32)
        if tied and name == "output":
            continue
        if len(shape) == 2 and kind != "F32":
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
SANDWICH = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def write_model(
    path: Path,
    model: Any,
    architecture: str = "llama",
    keys: Mapping[str, Any] = {},
    tensors: Mapping[str, np.ndarray] = {},
    tokenizer: Mapping[str, Any] = {},
    kind: str = "F32",
) -> Path:
    """A transformers model of 260 tokens, as llama.cpp's converter writes it.

    keys are of the architecture, tokenizer those under tokenizer.ggml.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    width = config.hidden_size // config.num_attention_heads
    own = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": getattr(config, "rms_norm_eps", None),
        "rope.freq_base": 10000.0,
        "rope.dimension_count": getattr(config, "head_dim", None) or width,
        **keys,
    }
    for key, value in own.items():
        if value is not None:
            _add(writer, f"{architecture}.{key}", value)
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<end>", "<turn>", "<more>", "th"]
    control = [gguf.TokenType.CONTROL if 256 <= index < 259 else gguf.TokenType.NORMAL for index in range(len(tokens))]
    words = {
        "model": "gpt2",
        "tokens": tokens,
        "token_type": control,
        "merges": ["t h"],
        "eos_token_id": 256,
        **tokenizer,
    }
    for key, value in words.items():
        if value is not None:
            _add(writer, f"tokenizer.{key}" if key == "chat_template" else f"tokenizer.ggml.{key}", value)
    for name, value in {**_named(model, architecture), **tensors}.items():
        data = np.ascontiguousarray(value, dtype=np.float32)
        quantised = gguf.GGMLQuantizationType[kind if data.ndim == 2 else "F32"]
        if quantised == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, gguf.quants.quantize(data, quantised), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)


def _named(model: Any, architecture: str) -> dict[str, np.ndarray]:
    named: dict[str, np.ndarray] = {}
    layer_names = LAYER_NAMES | (SANDWICH if architecture.startswith("gemma") else {})
    ends = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for name, value in dict(model.named_parameters()).items():
        data = value.detach().float().numpy()
        if name.endswith("experts.gate_up_proj"):
            layer = f"blk.{name.split('.')[2]}"
            half = data.shape[1] // 2
            named |= {f"{layer}.ffn_gate_exps.weight": data[:, :half], f"{layer}.ffn_up_exps.weight": data[:, half:]}
            continue
        if name.endswith("experts.down_proj"):
            named[f"blk.{name.split('.')[2]}.ffn_down_exps.weight"] = data
            continue
        stem, suffix = name.rsplit(".", 1)
        if architecture.startswith(("gemma", "nemotron")) and suffix == "weight" and "norm" in stem:
            data = data + 1
        if stem in ends:
            named[f"{ends[stem]}.{suffix}"] = data
            continue
        _, _, layer, inner = stem.split(".", 3)
        if inner == "mlp.shared_expert_gate":
            data = data[0]
        if architecture == "llama" and inner in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = model.config.num_attention_heads if "q_proj" in inner else model.config.num_key_value_heads
            halves = data.reshape(heads, 2, data.shape[0] // heads // 2, *data.shape[1:])
            data = halves.swapaxes(1, 2).reshape(data.shape)
        named[f"blk.{layer}.{layer_names[inner]}.{suffix}"] = data
    return named
